"""One load: hand rows over, wait for their reports, and say what became of them. In a transaction, or without one.

The outcome of a transaction belongs to all of its rows. Reports of single rows only say where a row lies once the commit has returned, and
what to blame when it can't be made: a report of success inside an aborted transaction means nothing.

Without transactions each row's outcome is its own report. The idempotent producer keeps order and writes nothing twice while it tries; what
it can't know is what became of a row without an answer. Such a row is neither delivered nor refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.errors import Scope, SessionLostError, Trouble, fatal_as_kafka_exception, kafka_error
from publisher.handover import HandedOver, Reports, collector_paused, flush, hand_over
from publisher.ready import topics_in
from publisher.session import Session
from publisher.settings import PublisherSettings

# The least time that a commit is given, in seconds.
_GLANCE: Final = 0.02

# Errors that only say that time has passed: every topic that still waits is in the same position.
_TIMEOUTS: Final = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT})

# Errors of a call whose reason is the state of the transaction, which has a better one.
_ASK_THE_TRANSACTION: Final = frozenset({KafkaError._STATE, KafkaError._FATAL})

# Answers of a broker that may have written the row all the same: too few copies in time, or it doesn't know.
_PERHAPS_WRITTEN: Final = frozenset(
    {KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)

# The client's errors for rows that were no longer waited for.
_GIVEN_UP: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


@dataclass(frozen=True, slots=True)
class Sent:
    """The first `len(sent_at)` rows were handed over. Those that are in none of the mappings are delivered: of a transaction, all."""

    sent_at: Sequence[int]
    partitions: Sequence[int | None]
    offsets: Sequence[int | None]

    refused: Mapping[int, Trouble] = field(default_factory=dict)
    """By position, rows that are certain not to be written. May hold the row after those that were handed over."""

    innocent: frozenset[int] = frozenset()
    """Rows that were refused for what another row of their batch is."""

    unanswered: Mapping[int, Trouble] = field(default_factory=dict)
    """Rows that may or may not be written."""

    lost: Trouble | None = None
    """Why no further load is possible, if none is."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing is delivered."""

    trouble: Trouble
    blamed: Mapping[str, Trouble] = field(default_factory=dict)
    """The topics at fault; empty when only the transaction as a whole is known to have failed."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The first `len(sent_at)` rows may or may not be delivered, and no further transaction is possible."""

    sent_at: list[int]
    trouble: Trouble


Outcome = Sent | Aborted | Unanswered


def in_transaction(
    session: Session, rows: pa.RecordBatch, batch_size: int, settings: PublisherSettings, clock: Callable[[], int]
) -> Outcome:
    """Sends rows in one transaction. Raises SessionLostError when it failed in a way that allows no other."""
    producer = session.producer(batch_size, rows.column("topic")[0].as_py())
    phase = settings.phase_ms / 1000
    reports = Reports(rows.num_rows, settings.error_kinds)
    try:
        producer.begin_transaction()
        with collector_paused():
            handed = hand_over(producer, rows, reports, time.monotonic() + phase, clock)
            # Flushed before the commit: its own flush would leave reports unread.
            patience = 0 if handed.refusal else phase
            flush(producer, time.monotonic() + patience, lambda: reports.errors or _standing_error(producer))
    except KafkaException as exception:
        # Reading reports raises only what is fatal to the producer.
        raise session.lost(kafka_error(exception)) from None
    if handed.refusal or not reports.all_delivered(handed.rows):
        return _abort(session, producer, rows, handed, reports, settings)

    error = _commit(producer, time.monotonic() + phase)
    if error is None:
        return Sent(handed.sent_at, reports.partitions[: handed.rows], reports.offsets[: handed.rows])
    trouble = session.lost(error).trouble
    if error.txn_requires_abort() and _is_aborted(session):
        return Aborted(trouble)
    return Unanswered(handed.sent_at, trouble)


def without_transaction(
    session: Session, rows: pa.RecordBatch, batch_size: int, settings: PublisherSettings, clock: Callable[[], int]
) -> Sent:
    """Sends rows, and waits for their reports. Raises SessionLostError only when nothing was sent."""
    producer = session.producer(batch_size, rows.column("topic")[0].as_py())
    phase = settings.phase_ms / 1000
    reports = Reports(rows.num_rows, settings.error_kinds)
    fatal: KafkaError | None = None
    try:
        with collector_paused():
            handed = hand_over(producer, rows, reports, time.monotonic() + phase, clock)
            flush(producer, time.monotonic() + phase, lambda: session.hopeless)
    except KafkaException as exception:
        # Fatal to the producer, and it is unknown how far the hand-over came.
        fatal = kafka_error(exception)
        handed = HandedOver(rows.num_rows, [clock()] * rows.num_rows, None)
    fatal = session.hopeless or fatal
    if handed.refusal is not None or fatal is not None or not reports.all_delivered(handed.rows):
        # Rows that are reported now were on their way. The next load gets a new producer: this one would count on after a refused batch.
        session.close()
    return _sorted_out(handed, reports, settings, fatal)


def _is_aborted(session: Session) -> bool:
    """Whether an abort after a failed commit is confirmed; the abort may have failed because the commit had not."""
    try:
        return session.abort()
    except SessionLostError:
        return False


def _standing_error(producer: Producer) -> KafkaError | None:
    """The error that the open transaction is already known to end with, if any.

    The client raises it when another transaction is begun; a transaction in good order merely refuses that.
    """
    try:
        producer.begin_transaction()
    except KafkaException as exception:
        error = kafka_error(exception)
        return None if error.code() == KafkaError._STATE else error
    raise AssertionError("a transaction began inside another")


def _abort(
    session: Session, producer: Producer, rows: pa.RecordBatch, handed: HandedOver, reports: Reports, settings: PublisherSettings
) -> Aborted:
    """Aborts, and finds out what to blame. Raises SessionLostError for what concerns every transaction, a fence for instance."""
    standing = _standing_error(producer)
    if standing is not None and standing.fatal():
        raise session.lost(standing)
    if handed.refusal is not None and handed.refusal[1].code() not in _ASK_THE_TRANSACTION:
        reports.refused(*handed.refusal)
    errors = dict(reports.errors)
    late = _late()
    if (not errors and standing is None) or any(error.code() in _TIMEOUTS for error in errors.values()):
        without_report = pa.array([partition is None for partition in reports.partitions[: handed.rows]], pa.bool_())
        for topic in topics_in(rows.slice(0, handed.rows).filter(without_report)):
            errors.setdefault(topic, late)
    blamed = {topic: settings.trouble_of(error) for topic, error in errors.items()}
    whole = settings.trouble_of(standing or next(iter(errors.values()), late))
    session.abort()
    return Aborted(whole, blamed)


def _commit(producer: Producer, deadline: float) -> KafkaError | None:
    """None when the commit returned. Repeats it while the client says that it may still be answered."""
    while True:
        try:
            with fatal_as_kafka_exception():
                producer.commit_transaction(max(deadline - time.monotonic(), _GLANCE))
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.retriable() or time.monotonic() >= deadline:
                return error
        else:
            return None


def _sorted_out(handed: HandedOver, reports: Reports, settings: PublisherSettings, fatal: KafkaError | None) -> Sent:
    """The outcome of each row that was handed over, by its report."""
    late = _late()
    refused: dict[int, Trouble] = {}
    innocent: set[int] = set()
    unanswered: dict[int, Trouble] = {}
    for row, partition in enumerate(reports.partitions[: handed.rows]):
        if partition is not None:
            continue
        error = reports.by_row.get(row, late)
        if error.code() in _GIVEN_UP:
            error = late
        trouble = settings.trouble_of(error)
        if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            innocent.add(row)
        elif trouble.scope != Scope.CONNECTION or _is_no(error, settings):
            refused[row] = trouble
        else:
            unanswered[row] = trouble
    if handed.refusal is not None:
        refused[handed.rows] = settings.trouble_of(handed.refusal[1])
    return Sent(
        handed.sent_at,
        reports.partitions[: handed.rows],
        reports.offsets[: handed.rows],
        refused,
        frozenset(innocent),
        unanswered,
        settings.trouble_of(fatal) if fatal is not None else None,
    )


def _is_no(error: KafkaError, settings: PublisherSettings) -> bool:
    """Whether a broker has answered that it did not write. A code that is not listed answers nothing."""
    code = error.code()
    return code > 0 and code in settings.error_kinds and code not in _PERHAPS_WRITTEN


def _late() -> KafkaError:
    return KafkaError(KafkaError._MSG_TIMED_OUT, "no report in a third of the transaction timeout")
