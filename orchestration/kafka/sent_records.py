"""Finds the deliveries that lie in ranges of Kafka's topics, by the headers that name them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from orchestration.kafka import clients
from orchestration.kafka.cluster import Partition
from orchestration.settings import Settings
from publisher import RejectedPropertiesError, kafka_error, redact

RANGES: Final = "topic string, partition int, begin bigint, end bigint"
"""The columns of what is read: offsets [begin, end) of a partition."""

_TIME: Final = pa.timestamp("us", tz="UTC")
FOUND: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("delivery_id", pa.string()),
        ("due_at", _TIME),
        ("sent_at", _TIME),
        ("content_hash", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("error_code", pa.int32()),
        ("problem", pa.string()),
    ]
)
"""One row for each record with the headers of a delivery (sent_at: the record's timestamp; content_hash: as the macro of this name computes
it), and one for each partition that could not be read to its end: then `delivery_id` is null, and error_code and problem say why."""

_DELIVERY: Final = "redrive-delivery"
_DUE: Final = "redrive-due"
_AT_ONCE: Final = 1_000

MARGIN: Final = timedelta(seconds=60)
"""How much earlier than a send its record is looked for: clocks of brokers and of Spark's machines differ."""

# The most offsets of a partition in one range: tasks share the ranges of a large partition.
_RANGE: Final = 200_000

# Nothing that redrive sends is due later, in milliseconds since 1970 (the year 9000). Others may write any number into a header, also one
# that is no time for Python.
_LATEST_DUE: Final = 221_845_392_000_000

# How long no record may come before a read ends, in seconds. An open transaction of another producer hides what comes after it.
_PATIENCE: Final = 10.0


def sent_in(
    spark: SparkSession, settings: Settings, ranges: Mapping[Partition, tuple[int, int]], *, with_content: bool = False
) -> DataFrame:
    """What lies in ranges of offsets (FOUND), read by Spark's tasks. Kept by Spark, as each use would read the topics again.

    with_content: as for find_sent. Raises errors of Spark.
    """
    rows = [
        (partition.topic, partition.number, low, min(low + _RANGE, end))
        for partition, (begin, end) in ranges.items()
        for low in range(begin, end, _RANGE)
    ]
    schema = from_arrow_schema(FOUND)
    if not rows:
        return spark.createDataFrame([], schema)
    kafka, group = dict(settings.kafka_properties), settings.group

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return find_sent(batches, kafka, group, with_content=with_content)

    return spark.createDataFrame(rows, RANGES).mapInArrow(read, schema).localCheckpoint(eager=True)


def find_sent(
    batches: Iterable[pa.RecordBatch], kafka: Mapping[str, str], group: str, patience: float = _PATIENCE, *, with_content: bool = False
) -> Iterator[pa.RecordBatch]:
    """Reads ranges (RANGES), and yields what was found there (FOUND). Raises nothing that Kafka or the properties cause: see `problem`.

    Only committed records count. group: a group id that the client may use; it doesn't join the group.
    with_content: also yields content_hash and headers; else both are null.
    """
    left = [row for batch in batches for row in batch.to_pylist()]
    while left:
        # a consumer reads each partition from one place on
        ranges: dict[tuple[str, int], dict[str, Any]] = {}
        for row in left:
            ranges.setdefault((row["topic"], row["partition"]), row)
        left = [row for row in left if row is not ranges[row["topic"], row["partition"]]]
        reading = _Reading(kafka, {where: row["end"] for where, row in ranges.items()}, with_content)
        yield from reading.run([TopicPartition(*where, row["begin"]) for where, row in ranges.items()], group, patience)


@dataclass
class _Reading:
    """One read. ends: of the partitions that are not read to their end yet, by topic and number."""

    kafka: Mapping[str, str]
    ends: dict[tuple[str, int], int]
    with_content: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self, places: list[TopicPartition], group: str, patience: float) -> Iterator[pa.RecordBatch]:
        """Reads partitions from these places on, with a consumer of its own."""
        try:
            # what retention has removed is not there: the read goes on with the first offset that is
            consumer = clients.reader(self.kafka, group, **{"auto.offset.reset": "earliest"})
            try:
                consumer.assign(places)
                yield from self._until_ends(consumer, patience)
            finally:
                consumer.close()
        except KafkaException as error:
            self.give_up(kafka_error(error).code(), kafka_error(error).str())
        except RejectedPropertiesError as error:
            self.give_up(KafkaError._INVALID_ARG, str(error))
        yield from self.taken()

    def _until_ends(self, consumer: Consumer, patience: float) -> Iterator[pa.RecordBatch]:
        """Reads until the ends, and yields what was found on the way."""
        heard = time.monotonic()
        while self.ends:
            messages = consumer.consume(_AT_ONCE, timeout=0.2)
            ended = [where for message in messages if (where := self._see(message)) is not None]
            if ended:
                # else the client would go on fetching what comes after the end
                consumer.pause([TopicPartition(*where) for where in ended])
            if any(message.error() is None for message in messages):
                heard = time.monotonic()
            elif time.monotonic() - heard > patience:
                self.give_up(KafkaError._TIMED_OUT, f"no record came within {patience:g} s: a transaction of another producer may be open")
            if len(self.rows) >= _AT_ONCE:
                yield from self.taken()

    def give_up(self, code: int, why: str) -> None:
        """Notes for all partitions that are not read to their end why they are not."""
        for topic, partition in self.ends:
            self._problem(topic, partition, code, why)
        self.ends = {}

    def taken(self) -> Iterator[pa.RecordBatch]:
        """What was found since the last call."""
        rows, self.rows = self.rows, []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, FOUND)

    def _see(self, message: Message) -> tuple[str, int] | None:
        """Notes what a message says. Returns the partition if this was its end."""
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        where = (topic or "", -1 if partition is None else partition)
        end = self.ends.get(where)
        if end is None:
            if error is not None and error.fatal():
                raise KafkaException(error)
            return None
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._problem(where[0], where[1], error.code(), error.str())
        elif offset is not None and offset < end:
            if error is None:
                self._found(message, where[0], where[1], offset)
            if error is not None or offset < end - 1:
                # more follows; at an end of the partition that lies before the range's, when a transaction ends that is still open
                return None
        del self.ends[where]
        return where

    def _found(self, message: Message, topic: str, partition: int, offset: int) -> None:
        try:
            pairs: Any = message.headers() or ()
        except Exception:
            # a name of its headers is not UTF-8, which the client can't read: redrive writes none
            return
        # the last of each name: ours come after those that the message had
        headers = {name: value for name, value in pairs if name in (_DELIVERY, _DUE)}
        delivery, due = (_text(headers.get(name)) for name in (_DELIVERY, _DUE))
        if delivery is None or due is None or not due.isdecimal() or len(due) > 15 or int(due) > _LATEST_DUE:
            return
        _, millis = message.timestamp()
        self.rows.append(
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "delivery_id": delivery,
                "due_at": int(due) * 1_000,
                "sent_at": millis * 1_000 if 0 <= millis < 10**15 else None,
                **(_content(message, pairs) if self.with_content else {}),
            }
        )

    def _problem(self, topic: str, partition: int, code: int, why: str) -> None:
        self.rows.append({"topic": topic, "partition": partition, "error_code": code, "problem": redact(why, self.kafka)})


def _content(message: Message, headers: Any) -> dict[str, Any]:
    """Key and value as a hash, and the headers, of which values are bytes or null."""
    parts: list[Any] = [message.key(), message.value()]
    lengths = ",".join("-1" if part is None else str(len(part)) for part in parts)
    content = b"".join(part.encode() if isinstance(part, str) else part for part in parts if part is not None)
    pairs = [{"key": name, "value": value.encode() if isinstance(value, str) else value} for name, value in headers]
    return {"content_hash": hashlib.sha256(lengths.encode() + content).hexdigest()[:32], "headers": pairs}


def _text(value: Any) -> str | None:
    return value.decode(errors="ignore") if isinstance(value, bytes) else value
