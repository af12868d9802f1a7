"""What a destination allows, checked before anything is sent: sizes, header names, partitions, and sizes of batches.

One record that a broker refuses costs its whole transaction, so what can be known beforehand is settled beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from publisher.clients import batch_size_of, largest_message
from publisher.destinations import Destination
from publisher.headers import headers_of, unsendable
from publisher.lightening import lightened
from publisher.settings import PublisherSettings
from publisher.sizes import exact_size, upper_bounds
from publisher.trouble import Trouble, trouble

_UNCOMPRESSED: Final = frozenset({"none", ""})


def misfits(rows: pa.RecordBatch, destinations: Mapping[str, Destination], settings: PublisherSettings) -> dict[int, Trouble]:
    """By position, the rows that are certain to be refused, and why.

    With compression nothing is certain about sizes (brokers measure what arrives), and they are left to the brokers.
    """
    found = {
        row: trouble(KafkaError.INVALID_RECORD, "a header's name is null, not UTF-8, or has a zero byte", settings)
        for row in unsendable(rows)
    }
    client_limit = largest_message(settings)
    bounds = pa.array(upper_bounds(rows))
    limits = _by_row(rows, {topic: _limit(destination, settings) for topic, destination in destinations.items()})
    suspects = pc.or_kleene(pc.greater(bounds, limits), pc.greater(bounds, client_limit))
    for row in pc.indices_nonzero(pc.fill_null(suspects, False)).to_pylist():
        if row in found:
            continue
        limit = limits[row].as_py()
        one = rows.slice(row, 1)
        size = exact_size(one.column("key")[0].as_py(), one.column("value")[0].as_py(), headers_of(one)[0] or [])
        allowed = client_limit if limit is None else min(limit, client_limit)
        if size > allowed:
            text = f"the record takes {size} bytes with its headers, the topic allows {allowed}"
            found[row] = trouble(KafkaError.MSG_SIZE_TOO_LARGE, text, settings)
    return found


def fitted(
    row: pa.RecordBatch, trouble: Trouble, destinations: Mapping[str, Destination], settings: PublisherSettings
) -> pa.RecordBatch | None:
    """One row that does not fit, with as much left out of it as makes it fit; None if nothing does."""
    lighter = lightened(row, trouble)
    while lighter is not None and (left := misfits(lighter, destinations, settings)):
        lighter = lightened(lighter, left[0])
    return lighter


def with_partitions(rows: pa.RecordBatch, destinations: Mapping[str, Destination]) -> pa.RecordBatch:
    """The rows, their wanted partition null where the topic has no such partition: then the key decides."""
    wanted = rows.column("partition")
    counts = _by_row(rows, {topic: destination.partitions for topic, destination in destinations.items()})
    exists = pc.and_(pc.greater_equal(wanted, 0), pc.less(pc.cast(wanted, pa.int64()), counts))
    given = pc.if_else(pc.fill_null(exists, False), wanted, pa.scalar(None, pa.int32()))
    return rows.set_column(rows.schema.get_field_index("partition"), "partition", given)


def by_batch_size(destinations: Mapping[str, Destination], settings: PublisherSettings) -> dict[int, list[str]]:
    """Topics by the batch size in bytes that suits them.

    Brokers hold a batch, not its records, against the limit, so a batch must not exceed it. Smaller limits are rounded
    down to a power of two: a producer has one batch size, and few sizes mean few producers.
    """
    largest = batch_size_of(settings)
    sizes: dict[int, list[str]] = {}
    for topic, destination in destinations.items():
        limit = destination.max_message_bytes
        size = largest if limit is None or limit >= largest else 1 << max(limit.bit_length() - 1, 0)
        sizes.setdefault(size, []).append(topic)
    return sizes


def _limit(destination: Destination, settings: PublisherSettings) -> int | None:
    compressed = any(settings.kafka.get(name, "none") not in _UNCOMPRESSED for name in ("compression.type", "compression.codec"))
    return None if compressed else destination.max_message_bytes


def _by_row(rows: pa.RecordBatch, by_topic: Mapping[str, int | None]) -> pa.Int64Array:
    """A number of each row's topic, as a column."""
    numbers = pa.array(by_topic.values(), pa.int64())
    return numbers.take(pc.index_in(rows.column("topic"), pa.array(by_topic.keys(), pa.string())))
