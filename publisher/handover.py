"""Hands rows over to the Kafka client, which sends them from threads of its own. The hot loop of the publisher."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, starmap
from operator import length_hint
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.headers import headers_of
from publisher.reports import Reports
from publisher.trouble import kafka_error, untangled

# Rows between two looks at the clock and the reports: about 10 ms at full speed.
CHUNK: Final = 1_000

# What librdkafka calls a partition that the partitioner chooses.
_BY_KEY: Final = -1

# How often a wait for reports looks whether it has become pointless, in seconds.
_GLANCE: Final = 0.02

# How long to wait for room in the client's queue before looking again, in seconds.
_PATIENCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What became of a hand-over."""

    rows: int
    """How many rows were handed over, from the first on; the time may have been up before the last."""

    sent_at: list[int]
    """For each of them a clock reading just after it was handed over, in epoch milliseconds: not before the timestamp
    that Kafka keeps for the record, which librdkafka takes at the hand-over, and at most a chunk later."""

    refusal: tuple[str, KafkaError] | None
    """The topic and the error of the row after them, when the client itself did not take it."""


def hand_over(producer: Producer, rows: pa.RecordBatch, reports: Reports, deadline: float, clock: Callable[[], int]) -> HandedOver:
    """Hands over rows in their order until the monotonic `deadline`, at least one chunk."""
    sent_at: list[int] = []
    for start in range(0, rows.num_rows, CHUNK):
        if start and time.monotonic() >= deadline:
            break
        chunk = rows.slice(start, CHUNK)
        taken, error = _produce_all(producer, _arguments(chunk, reports, start), deadline)
        sent_at += [clock()] * taken
        if error is not None:
            return HandedOver(len(sent_at), sent_at, (chunk.column("topic")[taken].as_py(), error))
        if not sent_at:
            # An empty queue without room for a single row will not have any later either.
            return HandedOver(0, [], (chunk.column("topic")[0].as_py(), KafkaError(KafkaError._QUEUE_FULL)))
        if taken < chunk.num_rows:
            break
        producer.poll(0)
    return HandedOver(len(sent_at), sent_at, None)


def flush(producer: Producer, deadline: float, pointless: Callable[[], object]) -> None:
    """Waits for the reports of what was handed over: until all are there, waiting is pointless, or the deadline is past."""
    while True:
        with untangled():
            left = producer.flush(_GLANCE)
        if not left or pointless() or time.monotonic() >= deadline:
            return


def _arguments(rows: pa.RecordBatch, reports: Reports, first: int) -> list[list[Any]]:
    """The arguments of `Producer.produce`, a column for each parameter, in the parameters' order."""
    count = rows.num_rows
    return [
        rows.column("topic").to_pylist(),
        rows.column("value").to_pylist(),
        rows.column("key").to_pylist(),
        pc.fill_null(rows.column("partition"), _BY_KEY).to_pylist(),
        list(islice(reports.callbacks(first), count)),
        [None] * count,  # on_delivery, the callback's other name
        [0] * count,  # the timestamp: librdkafka's clock
        headers_of(rows),
    ]


def _produce_all(producer: Producer, arguments: list[list[Any]], deadline: float) -> tuple[int, KafkaError | None]:
    """How many messages the client took, and why not the next; no error when only the time was up."""
    count, taken = len(arguments[0]), 0
    while True:
        first, *others = (column[taken:] for column in arguments)
        waiting = iter(first)
        try:
            # Runs without a step of Python for each row.
            deque(starmap(producer.produce, zip(waiting, *others, strict=True)), maxlen=0)
        except (BufferError, KafkaException) as exception:
            # What the iterator has given out was taken, but for the last.
            taken = count - length_hint(waiting) - 1
            if isinstance(exception, KafkaException):
                return taken, kafka_error(exception)
            if time.monotonic() >= deadline:
                return taken, None
            producer.poll(_PATIENCE)
        else:
            return count, None
