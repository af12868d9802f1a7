"""Reads records that Spark's source for Kafka can't read, with another client.

Spark converts the timestamp of every record while it reads. One that is out of its range, such as from a producer that writes nanoseconds,
fails the whole read each time. This module reads any record, and notes what it can't keep.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from orchestration.kafka import clients
from orchestration.kafka.cluster import Range
from publisher import RejectedPropertiesError, kafka_error, redact

RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, millis bigint, timestampType int,"
    "headers array<struct<key: string, value: binary>>, problem string"
)
"""The columns of Spark's source, with the timestamp as a number; problem: what could not be read of a record."""

LAST_MILLIS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest that Python supports."""

# A read ends when no record has come for this long.
_PATIENCE_SECONDS = 10.0

_AT_ONCE = 500


class UnreadError(Exception):
    """A partition could not be read."""


@dataclass(frozen=True)
class Records:
    """Records of one range, in rows of RECORDS. end: the next offset; has_odd_ones: whether there may be one that Spark can't read."""

    rows: list[tuple[Any, ...]]
    end: int
    size: int
    has_odd_ones: bool


def read_records(kafka: Mapping[str, str], group: str, part: Range, most_bytes: int, seconds: float = _PATIENCE_SECONDS) -> Records:
    """Reads the committed records of a range until its end, or until they have `most_bytes` bytes. Raises UnreadError.

    group: a group id that this client may use; it doesn't join the group.
    """
    where = TopicPartition(part.partition.topic, part.partition.number, part.begin)
    try:
        consumer = clients.reader(kafka, group)
        try:
            consumer.assign([where])
            return _read(consumer, part, most_bytes, seconds)
        finally:
            consumer.close()
    except KafkaException as error:
        raise UnreadError(redact(kafka_error(error).str(), kafka)) from None
    except RejectedPropertiesError as error:
        raise UnreadError(str(error)) from None


def _read(consumer: Consumer, part: Range, most_bytes: int, seconds: float) -> Records:
    rows: list[tuple[Any, ...]] = []
    size = 0
    end = part.begin
    deadline = time.monotonic() + seconds
    while end < part.end and size < most_bytes:
        messages = consumer.consume(_AT_ONCE, timeout=max(0.0, min(1.0, deadline - time.monotonic())))
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                # only markers of transactions are left
                return Records(rows, part.end, size, _has_odd_ones(rows))
            if error is not None and message.topic() is None and not error.fatal():
                # an error about a broker or the group: reading can go on
                continue
            if error is not None:
                raise KafkaException(error)
            offset = message.offset()
            assert offset is not None
            if offset >= part.end:
                return Records(rows, part.end, size, _has_odd_ones(rows))
            row = _row(message)
            rows.append(row)
            size += _size(row)
            end = offset + 1
            deadline = time.monotonic() + seconds
            if size >= most_bytes:
                break
        if not messages and time.monotonic() >= deadline:
            if rows:
                break
            raise UnreadError(f"no record within {seconds:g} s")
    return Records(rows, end, size, _has_odd_ones(rows))


def _row(message: Message) -> tuple[Any, ...]:
    kind, millis = message.timestamp()
    problem = None
    try:
        headers: Any = message.headers() or None
    except Exception:
        # a header name that is not UTF-8: Java's client replaces what it can't decode, this one returns none of the headers
        headers, problem = None, "headers"
    return (
        message.key(),
        message.value(),
        message.topic(),
        message.partition(),
        message.offset(),
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else millis,
        int(kind == TIMESTAMP_LOG_APPEND_TIME),
        headers,
        problem,
    )


def _size(row: tuple[Any, ...]) -> int:
    key, value, headers = row[0], row[1], row[7] or ()
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)


def _has_odd_ones(rows: list[tuple[Any, ...]]) -> bool:
    return any(not -1 <= row[5] <= LAST_MILLIS or row[8] is not None for row in rows)
