"""What a destination allows, checked before anything is sent: sizes, header names, partitions, and sizes of batches.

One record that a broker refuses aborts its whole transaction. A dead letter that can't be sent unchanged is lightened: headers whose names
the Kafka client can't carry are left out; if it is too large, first the headers that say why the message died (the tables have them), then
the payload. The headers that name the message stay, so that the payload can be found.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from publisher.clients import batch_size_of, largest_message
from publisher.contract import DEAD_LETTER, OMITTED_HEADERS, OMITTED_PAYLOAD, OMITTED_UNSENDABLE, RECORDS
from publisher.destinations import Destination
from publisher.errors import Trouble
from publisher.headers import Headers, Numbers, headers_of, sendable, unsendable
from publisher.settings import PublisherSettings

# Bytes of a record batch v2 (KIP-98) without compression: its own header, which brokers count; the most that a record's own fields take
# (length 5, attributes 1, timestamp 10, offset, lengths of key and value, number of headers 5 each); the two lengths of a header.
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 36
_HEADER_OVERHEAD: Final = 10
# Headers that tell the reader of a dead letter that the message had a payload, or more headers.
_PAYLOAD_OMITTED: Final = ("redrive-payload", b"omitted")
_HEADERS_OMITTED: Final = ("redrive-headers", b"omitted")


def misfits(rows: pa.RecordBatch, destinations: Mapping[str, Destination], settings: PublisherSettings) -> dict[int, Trouble]:
    """By position, the rows that are certain to be refused, and why. Compressed sizes are not certain: brokers measure what arrives."""
    bad_name = settings.trouble(KafkaError.INVALID_RECORD, "a header's name is null, not UTF-8, or has a zero byte")
    found = dict.fromkeys(unsendable(rows), bad_name)
    compressed = any(settings.kafka.get(name, "none") not in ("none", "") for name in ("compression.type", "compression.codec"))
    client_limit = largest_message(settings)
    limits = _by_row(rows, {topic: None if compressed else known.max_message_bytes for topic, known in destinations.items()})
    bounds = pa.array(upper_bounds(rows))
    suspects = pc.or_kleene(pc.greater(bounds, limits), pc.greater(bounds, client_limit))
    for row in pc.indices_nonzero(pc.fill_null(suspects, False)).to_pylist():
        if row in found:
            continue
        limit = limits[row].as_py()
        size = exact_size(*_content(rows.slice(row, 1)))
        allowed, by = min((client_limit, "message.max.bytes"), (client_limit if limit is None else limit, "the topic"))
        if size > allowed:
            text = f"the record takes {size} bytes with its headers, {by} allows {allowed}"
            found[row] = settings.trouble(KafkaError.MSG_SIZE_TOO_LARGE, text)
    return found


def with_partitions(rows: pa.RecordBatch, destinations: Mapping[str, Destination]) -> pa.RecordBatch:
    """The rows, with a null in place of a partition that the topic does not have: then the key decides."""
    wanted = rows.column("partition")
    counts = _by_row(rows, {topic: destination.partitions for topic, destination in destinations.items()})
    exists = pc.and_(pc.greater_equal(wanted, 0), pc.less(pc.cast(wanted, pa.int64()), counts))
    given = pc.if_else(pc.fill_null(exists, False), wanted, pa.scalar(None, pa.int32()))
    return rows.set_column(rows.schema.get_field_index("partition"), "partition", given)


def by_batch_size(destinations: Mapping[str, Destination], settings: PublisherSettings) -> dict[int, list[str]]:
    """Topics by the batch size in bytes that suits them: brokers compare a batch, not its records, with the limit."""
    # Smaller limits are rounded down to a power of two: a producer has one batch size, and few sizes mean few producers.
    largest = batch_size_of(settings)
    sizes: dict[int, list[str]] = {}
    for topic, destination in destinations.items():
        limit = destination.max_message_bytes
        size = largest if limit is None or limit >= largest else 1 << max(limit.bit_length() - 1, 0)
        sizes.setdefault(size, []).append(topic)
    return sizes


def lightened(row: pa.RecordBatch, trouble: Trouble) -> pa.RecordBatch | None:
    """A refused dead letter with less in it, as its `omitted` says; None if that does not help, or if the row is no dead letter."""
    if row.column("kind")[0].as_py() != DEAD_LETTER:
        return None
    # told apart by position: the message's own headers and those of a header profile may have any name
    own, reasons = (row.column(name)[0].as_py() or 0 for name in ("own_headers", "reason_headers"))
    if trouble.error.code == KafkaError.INVALID_RECORD:
        kept = sendable(pc.struct_field(row.column("headers").flatten(), "key"))
        return None if all(kept) else _without_unsendable(row, kept, own, reasons)
    if trouble.error.code not in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return None
    key, value, headers = _content(row)
    identity = [header for header in headers[own + reasons :] if header != _PAYLOAD_OMITTED]
    omitted_before = [_PAYLOAD_OMITTED] if _PAYLOAD_OMITTED in headers[own:] else []
    size = exact_size(key, value, headers)
    without_reasons = OMITTED_HEADERS if row.column("omitted")[0].as_py() is None else f"{OMITTED_UNSENDABLE}+{OMITTED_HEADERS}"
    for lighter_key, lighter_value, kept_own, lighter_headers, omitted in (
        (key, value, own, [*headers[:own], *identity, *omitted_before], without_reasons),
        (key, None, 0, [*identity, _PAYLOAD_OMITTED], OMITTED_PAYLOAD),
        (None, None, 0, [*identity, _PAYLOAD_OMITTED], OMITTED_PAYLOAD),
    ):
        if exact_size(lighter_key, lighter_value, lighter_headers) < size:
            return _with(row, lighter_key, lighter_value, lighter_headers, (kept_own, 0), omitted)
    return None


def upper_bounds(rows: pa.RecordBatch) -> Numbers:
    """For each row, an upper bound of its size when it is sent alone. Computed from Arrow's offsets, so that headers need no loop."""
    headers = rows.column("headers")
    firsts_and_ends = headers.offsets.to_numpy()
    size = np.full(rows.num_rows, _BATCH_OVERHEAD + _RECORD_OVERHEAD, np.int64)
    size += np.diff(firsts_and_ends) * _HEADER_OVERHEAD
    for part in (headers.values.field("key"), headers.values.field("value")):
        size += np.diff(_offsets(part)[firsts_and_ends])
    for column in (rows.column("key"), rows.column("value")):
        size += np.diff(_offsets(column))
    return size


def exact_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """The exact size of a record that is sent alone in a batch: what brokers compare with max.message.bytes."""
    size = 1 + 1 + 1 + _varint(len(headers))  # attributes, timestamp and offset relative to the batch's, header count
    for content in (key, value, *(part for name, text in headers for part in (name.encode(), text))):
        size += _varint(-1) if content is None else _varint(len(content)) + len(content)
    return _BATCH_OVERHEAD + _varint(size) + size


def _offsets(column: pa.Array) -> Numbers:
    """Where each value of a column begins in its data, and where the last one ends."""
    buffer = column.buffers()[1]
    if len(column) == 0 or buffer is None:
        return np.zeros(len(column) + 1, np.int64)
    return np.frombuffer(buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)


def _varint(number: int) -> int:
    """Length of a zigzag varint: seven bits in each byte."""
    zigzag = (number << 1) ^ (number >> 63)
    return max(1, -(-zigzag.bit_length() // 7))


def _by_row(rows: pa.RecordBatch, by_topic: Mapping[str, int | None]) -> pa.Int64Array:
    """The number that belongs to the topic of each row, as a column."""
    numbers = pa.array(by_topic.values(), pa.int64())
    return numbers.take(pc.index_in(rows.column("topic"), pa.array(by_topic.keys(), pa.string())))


def _content(row: pa.RecordBatch) -> tuple[bytes | None, bytes | None, Headers]:
    return row.column("key")[0].as_py(), row.column("value")[0].as_py(), headers_of(row)[0] or []


def _without_unsendable(row: pa.RecordBatch, kept: list[bool], own: int, reasons: int) -> pa.RecordBatch:
    """The row with the headers that are kept. The others are not decoded: a name that is not UTF-8 would raise."""
    column = pa.ListArray.from_arrays(pa.array([0, sum(kept)], pa.int32()), row.column("headers").flatten().filter(pa.array(kept)))
    key, value, headers = _content(row.set_column(row.schema.get_field_index("headers"), RECORDS.field("headers"), column))
    counts = sum(kept[:own]), sum(kept[own : own + reasons])
    return _with(row, key, value, [*headers, _HEADERS_OMITTED], counts, OMITTED_UNSENDABLE)


def _with(
    row: pa.RecordBatch, key: bytes | None, value: bytes | None, headers: Headers, counts: tuple[int, int], omitted: str
) -> pa.RecordBatch:
    """The row with another content. counts: how many of the headers are the message's own, and how many say why it died."""
    columns = dict(zip(row.schema.names, row.columns, strict=True))
    columns["key"] = pa.array([key], pa.binary())
    columns["value"] = pa.array([value], pa.binary())
    columns["headers"] = pa.array([[{"key": name, "value": content} for name, content in headers]], RECORDS.field("headers").type)
    columns["own_headers"], columns["reason_headers"] = (pa.array([count], pa.int32()) for count in counts)
    columns["omitted"] = pa.array([omitted], pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS)
