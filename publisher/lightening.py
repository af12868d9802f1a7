"""Dead letters that can't be sent as they are: what may be left out, so that something lies there rather than nothing.

Of one with header names that the Kafka client can't carry, these headers. Of one that is too large for its topic, first the
headers that say why the message died: they are in the tables, too. Then the payload, and what came with it. What says which
message it is stays, so that the payload can be found.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError

from publisher.contract import DEAD_LETTER, OMITTED_HEADERS, OMITTED_PAYLOAD, OMITTED_UNSENDABLE, RECORDS
from publisher.headers import Headers, carried, headers_of
from publisher.sizes import exact_size
from publisher.trouble import Trouble

# Says to whoever reads the dead letter that the message had a payload.
_OMITTED: Final = ("redrive-payload", b"omitted")

# Says to whoever reads the dead letter that the message had more headers.
_HEADERS_OMITTED: Final = ("redrive-headers", b"omitted")

_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


def lightened(row: pa.RecordBatch, trouble: Trouble) -> pa.RecordBatch | None:
    """One refused row with less in it, and a column `omitted` that says what is left out.

    None if the trouble is neither its size nor a header's name, if it is no dead letter, or if nothing is left that may be left out.
    """
    if row.column("kind")[0].as_py() != DEAD_LETTER:
        return None
    if trouble.error.code == KafkaError.INVALID_RECORD:
        return _sendable(row)
    if trouble.error.code not in _TOO_LARGE:
        return None
    key, value, headers = row.column("key")[0].as_py(), row.column("value")[0].as_py(), headers_of(row)[0] or []
    # told apart by where they stand: names are the message's own affair, and a header profile's
    own = row.column("own_headers")[0].as_py() or 0
    reasons = row.column("reason_headers")[0].as_py() or 0
    identity = [header for header in headers[own + reasons :] if header != _OMITTED]
    mark = [_OMITTED] if _OMITTED in headers[own:] else []
    size = exact_size(key, value, headers)
    before = omitted_of(row)[0].as_py()
    without_reasons = OMITTED_HEADERS if before is None else f"{OMITTED_UNSENDABLE}+{OMITTED_HEADERS}"
    for lighter_key, lighter_value, kept, lighter_headers, omitted in (
        (key, value, own, [*headers[:own], *identity, *mark], without_reasons),
        (key, None, 0, [*identity, _OMITTED], OMITTED_PAYLOAD),
        (None, None, 0, [*identity, _OMITTED], OMITTED_PAYLOAD),
    ):
        if exact_size(lighter_key, lighter_value, lighter_headers) < size:
            return _with(row, lighter_key, lighter_value, lighter_headers, kept, omitted)
    return None


def omitted_of(rows: pa.RecordBatch) -> pa.Array:
    """What is left out of each row; null where nothing is."""
    return rows.column("omitted") if "omitted" in rows.schema.names else pa.nulls(rows.num_rows, pa.string())


def replaced(rows: pa.RecordBatch, others: dict[int, pa.RecordBatch]) -> pa.RecordBatch:
    """The rows with some of them, by position, replaced by lightened ones."""
    if not others:
        return rows
    full = rows if "omitted" in rows.schema.names else rows.append_column("omitted", omitted_of(rows))
    together = pa.Table.from_batches([full, *others.values()]).combine_chunks().to_batches()[0]
    places = {position: rows.num_rows + number for number, position in enumerate(others)}
    return together.take(pa.array([places.get(position, position) for position in range(rows.num_rows)], pa.int64()))


def _sendable(row: pa.RecordBatch) -> pa.RecordBatch | None:
    """The row without the headers whose names the client can't carry; None where it has none of these."""
    kept = carried(row)
    if all(kept):
        return None
    own = row.column("own_headers")[0].as_py() or 0
    reasons = row.column("reason_headers")[0].as_py() or 0
    sent = row.set_column(row.schema.get_field_index("headers"), RECORDS.field("headers"), _only(row.column("headers"), kept))
    headers = [*(headers_of(sent)[0] or []), _HEADERS_OMITTED]
    key, value = row.column("key")[0].as_py(), row.column("value")[0].as_py()
    return _with(row, key, value, headers, sum(kept[:own]), OMITTED_UNSENDABLE, sum(kept[own : own + reasons]))


def _only(headers: pa.ListArray, kept: list[bool]) -> pa.ListArray:
    """The headers of one row that are kept. Their names are not decoded: one that is not UTF-8 would raise."""
    return pa.ListArray.from_arrays(pa.array([0, sum(kept)], pa.int32()), headers.flatten().filter(pa.array(kept)))


def _with(
    row: pa.RecordBatch, key: bytes | None, value: bytes | None, headers: Headers, own: int, omitted: str, reasons: int = 0
) -> pa.RecordBatch:
    columns = {name: row.column(name) for name in RECORDS.names}
    columns["key"] = pa.array([key], pa.binary())
    columns["value"] = pa.array([value], pa.binary())
    columns["headers"] = pa.array([[{"key": name, "value": content} for name, content in headers]], RECORDS.field("headers").type)
    columns["own_headers"] = pa.array([own], pa.int32())
    columns["reason_headers"] = pa.array([reasons], pa.int32())
    columns["omitted"] = pa.array([omitted], pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS.append(pa.field("omitted", pa.string())))
