"""Writes failure reports of messages that don't exist, as consumers would."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Producer

from publisher import make_client

_STACK = b"Traceback (most recent call last):\n" * 20


def report_failures(
    kafka: dict[str, str],
    topic: str,
    rows: int,
    first_offset: int,
    *,
    partitions: int = 1,
    stride: Callable[[int], int] = lambda partition: 1,
    value: Callable[[], bytes] = lambda: b"v" * 500,
    stack: bytes | None = _STACK,
    failed_at_ms: int | None = None,
    error: Callable[[int], dict[str, bytes]] = lambda number: {},
    key: Callable[[int], str] = lambda number: f"key-{number}",
) -> int:
    """Reports first failures, each of another record of `topic`; returns the next original offset, the same for all partitions.

    stride: the distance between the offsets of a partition. The offsets that are passed and returned are not multiplied by it.
    error: headers of the n-th report that replace the default ones. key: that of the n-th record.
    """
    producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
    stated = {
        "trace-id": b"0" * 32,
        "redrive-error-class": b"TimeoutError",
        "redrive-error-message": b"no answer within 2 s",
        **({} if stack is None else {"redrive-error-stack": stack}),
        "redrive-original-topic": topic.encode(),
        "redrive-failed-at": str(failed_at_ms or int(time.time() * 1000)).encode(),
        "redrive-consumer-group": b"billing",
    }
    for number in range(rows):
        place = {
            "redrive-original-partition": str(number % partitions).encode(),
            "redrive-original-offset": str((first_offset + number // partitions) * stride(number % partitions)).encode(),
        }
        headers = {**stated, **error(number), **place}
        producer.produce("redrive.failures", value(), key(number), headers=list(headers.items()))
        producer.poll(0)
    producer.flush()
    return first_offset + -(-rows // partitions)
