"""Hands rows over to the Kafka client, which sends them from threads of its own, and collects its reports. The hot loop of the
publisher."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat, starmap
from operator import length_hint
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.errors import ErrorKind, Scope, classify, fatal_as_kafka_exception, kafka_error
from publisher.headers import headers_of

# Rows between two looks at the clock and the reports: about 10 ms at full speed.
CHUNK: Final = 1_000

# librdkafka's number for a partition that the partitioner chooses.
_BY_KEY: Final = -1

# Seconds between two looks whether a wait for reports has become pointless.
_GLANCE: Final = 0.02

# Seconds to wait for room in the client's queue before looking again.
_PATIENCE: Final = 0.05

# Errors of rows that were fine themselves, when the transaction or the batch around them was not.
_CONSEQUENCES: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._STATE,
        KafkaError._FATAL,
    }
)

# A refusal that concerns more explains the others; an error of the connection explains nothing.
_WEIGHT: Final = {Scope.CONNECTION: 0, Scope.RECORD: 1, Scope.TOPIC: 2}


class Reports:
    """The delivery reports of `rows` rows, by position.

    Reports carry no row id, so each row has a callback of its own. As a `partial`, made without a step of Python, it costs 0.4 of about 4
    microseconds a row more than one callback for all rows, whose reports could only be told apart by their order.
    """

    def __init__(self, rows: int, kinds: Mapping[int, ErrorKind]) -> None:
        self.partitions: list[int | None] = [None] * rows
        """Where each row lies; None before its report. Holds only once the transaction is committed."""
        self.offsets: list[int | None] = [None] * rows

        self.errors: dict[str, KafkaError] = {}
        """For each topic that refused something, the refusal that explains most."""

        self.by_row: dict[int, KafkaError] = {}
        """The error of each row that has one, consequences of other rows' errors included."""

        self._kinds = kinds

    def callbacks(self, first: int) -> Iterator[Callable[[KafkaError | None, Message], None]]:
        """The callbacks of the rows from position `first` on."""
        return map(partial, repeat(self._report), range(first, len(self.offsets)))

    def all_delivered(self, rows: int) -> bool:
        """Whether each of the first `rows` rows was reported as delivered."""
        # By partition: the offset of a row whose first acknowledgement got lost stays unknown.
        return None not in self.partitions[:rows]

    def refused(self, topic: str, error: KafkaError) -> None:
        """Notes a refusal. Of several for a topic the one that concerns more is kept, of equal ones the first."""
        if error.code() in _CONSEQUENCES:
            return
        before = self.errors.get(topic)
        if before is None or self._weight(error) > self._weight(before):
            self.errors[topic] = error

    def _report(self, row: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.partitions[row] = message.partition()
            self.offsets[row] = message.offset()
        else:
            self.by_row[row] = error
            self.refused(str(message.topic()), error)

    def _weight(self, error: KafkaError) -> int:
        return _WEIGHT[classify(error.code(), self._kinds).scope]


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What became of a hand-over."""

    rows: int
    """How many rows were handed over, from the first on; the time may have been up before the last."""

    sent_at: list[int]
    """For each of them a clock reading just after it was handed over, in epoch milliseconds: not before the timestamp that Kafka keeps for
    the record, which librdkafka takes at the hand-over, and at most a chunk later."""

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
        if error is None and not sent_at:
            # An empty queue without room for a single row will not have any later either.
            error = KafkaError(KafkaError._QUEUE_FULL)
        if error is not None:
            return HandedOver(len(sent_at), sent_at, (chunk.column("topic")[taken].as_py(), error))
        if taken < chunk.num_rows:
            break
        producer.poll(0)
    return HandedOver(len(sent_at), sent_at, None)


def flush(producer: Producer, deadline: float, pointless: Callable[[], object]) -> None:
    """Waits for the reports of what was handed over: until all are there, waiting is pointless, or the deadline is past."""
    while True:
        with fatal_as_kafka_exception():
            left = producer.flush(_GLANCE)
        if not left or pointless() or time.monotonic() >= deadline:
            return


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collections of cycles inside; reference counting goes on. Meant for the length of one transaction.

    Sending allocates a few containers for each row and no cycles, but their number makes the collector run over everything else that the
    process holds: with callbacks for 50,000 rows that cost up to half of the rate.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
