"""Hands rows over to the Kafka client, which sends them from threads of its own, and collects its reports: the hot loop."""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import repeat, starmap
from operator import length_hint
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.clients import fatal_as_kafka_exception, kafka_error
from publisher.errors import Concerns, ErrorKind, classify
from publisher.headers import headers_of

Clock = Callable[[], int]
# Rows between two looks at the clock and the reports: about 10 ms at full speed.
CHUNK: Final = 1_000
# In seconds: between two checks for an error that makes waiting for reports pointless; the wait for room in the client's queue.
_GLANCE: Final = 0.02
_PATIENCE: Final = 0.05
# Errors of rows that are not at fault themselves: their transaction or their batch failed.
_CONSEQUENCES: Final = (
    KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._STATE, KafkaError._FATAL,
)  # fmt: skip

# Of several errors for a topic, the one with the highest weight is kept: an error of the topic explains those of its records, and an error
# of the connection explains neither.
_WEIGHT: Final = {Concerns.CONNECTION: 0, Concerns.RECORD: 1, Concerns.TOPIC: 2}


class Reports:
    """What became of `rows` rows, by position: which the client took, and what it reported of each.

    sent_at: for each row that was handed over a clock reading just after it, epoch milliseconds: not before the record's timestamp,
    which librdkafka takes at the hand-over, and at most a chunk later. refusal: topic and error of the row after them, if the client did
    not take it. partitions, offsets: where each row lies, once its report is there; holds only when the transaction is committed. errors:
    by topic, the refusal with the highest weight. by_row: the error of each row that has one, consequences of other rows' errors included.
    """

    def __init__(self, rows: int, kinds: Mapping[int, ErrorKind]) -> None:
        self.sent_at: list[int] = []
        self.refusal: tuple[str, KafkaError] | None = None
        self.partitions: list[int | None] = [None] * rows
        self.offsets: list[int | None] = [None] * rows
        self.errors: dict[str, KafkaError] = {}
        self.by_row: dict[int, KafkaError] = {}
        self._kinds = kinds

    @property
    def handed(self) -> int:
        """How many rows were handed over: not all if the time was up, or if the client refused one."""
        return len(self.sent_at)

    @property
    def places(self) -> tuple[list[int], list[int | None], list[int | None]]:
        """Of the rows that were handed over: when each was sent, its partition, its offset."""
        return self.sent_at, self.partitions[: self.handed], self.offsets[: self.handed]

    @property
    def all_delivered(self) -> bool:
        """Whether the client took each row that it was given, and each of these was reported as delivered."""
        # By partition: the offset of a row whose first acknowledgement got lost stays unknown.
        return self.refusal is None and None not in self.partitions[: self.handed]

    def refused(self, topic: str, error: KafkaError) -> None:
        """Notes a refusal. Of several for a topic, the one with the highest weight is kept, of equal ones the first."""
        if error.code() not in _CONSEQUENCES:
            before = self.errors.get(topic, error)
            self.errors[topic] = max(before, error, key=lambda one: _WEIGHT[classify(one.code(), self._kinds).concerns])

    def report(self, row: int, error: KafkaError | None, message: Message) -> None:
        """The callback of one row: notes its report."""
        if error is None:
            self.partitions[row] = message.partition()
            self.offsets[row] = message.offset()
        else:
            self.by_row[row] = error
            self.refused(str(message.topic()), error)


def hand_over(producer: Producer, rows: pa.RecordBatch, reports: Reports, deadline: float, clock: Clock) -> None:
    """Hands over rows in their order until the monotonic `deadline`, at least one chunk."""
    for start in range(0, rows.num_rows, CHUNK):
        if start and time.monotonic() >= deadline:
            return
        chunk = rows.slice(start, CHUNK)
        # The arguments are not kept in a variable: the objects of one chunk are freed before the next ones are made.
        taken, error = _produce_all(producer, _arguments(chunk, reports, start), deadline)
        reports.sent_at += [clock()] * taken
        if error is None and not reports.sent_at:
            # Until the deadline the client had no room for a single row, though its queue is empty: waiting longer can't help.
            error = KafkaError(KafkaError._QUEUE_FULL)
        if error is not None:
            reports.refusal = chunk.column("topic")[taken].as_py(), error
        if taken < chunk.num_rows:
            return
        producer.poll(0)


def flush(producer: Producer, deadline: float, pointless: Callable[[], object]) -> None:
    """Waits for the reports of what was handed over: until all are there, waiting is pointless, or the deadline is past."""
    while True:
        with fatal_as_kafka_exception():
            left = producer.flush(_GLANCE)
        if not left or pointless() or time.monotonic() >= deadline:
            return


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses Python's garbage collector for one transaction: with callbacks for 50,000 rows it costs up to half of the throughput."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _arguments(rows: pa.RecordBatch, reports: Reports, first: int) -> list[list[Any]]:
    """The arguments of `Producer.produce`, a column for each parameter, in the parameters' order."""
    return [
        *(rows.column(name).to_pylist() for name in ("topic", "value", "key")),
        pc.fill_null(rows.column("partition"), -1).to_pylist(),  # -1: the partitioner chooses
        # Reports carry no row id, so each row has a callback of its own. This takes 0.4 of about 4 microseconds a row.
        list(map(partial, repeat(reports.report), range(first, first + rows.num_rows))),
        [None] * rows.num_rows,  # on_delivery, the callback's other name
        [0] * rows.num_rows,  # the timestamp: librdkafka's clock
        headers_of(rows),
    ]


def _produce_all(producer: Producer, arguments: list[list[Any]], deadline: float) -> tuple[int, KafkaError | None]:
    """How many messages the client took, and the error for which it refused the next; None if it took all, or the time was up."""
    count, taken = len(arguments[0]), 0
    while True:
        first, *others = (column[taken:] for column in arguments)
        waiting = iter(first)
        try:
            # Runs in C, without Python code for each row.
            deque(starmap(producer.produce, zip(waiting, *others, strict=True)), maxlen=0)
            return count, None
        except (BufferError, KafkaException) as exception:
            # The client has taken what the iterator has yielded, except the last.
            taken = count - length_hint(waiting) - 1
            if isinstance(exception, KafkaException):
                return taken, kafka_error(exception)
            if time.monotonic() >= deadline:
                return taken, None
            producer.poll(_PATIENCE)
