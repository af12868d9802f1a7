"""Sends one load: hands rows over, waits for their reports, and returns their outcome.

The outcome of a transaction is that of all its rows: a report of success inside an aborted one means nothing. Without transactions each
row's outcome is its own report. The idempotent producer keeps order and writes nothing twice while it retries, but a row without an answer
is neither delivered nor refused: it may have been written.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.clients import fatal_as_kafka_exception, kafka_error
from publisher.errors import Concerns, SessionLostError, Trouble
from publisher.handover import Clock, Reports, collector_paused, flush, hand_over
from publisher.ready import topics_in
from publisher.session import Session
from publisher.settings import PublisherSettings

# Errors that only say that time has passed: then every topic with rows without a report is to blame.
_TIMEOUTS: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
# Answers of a broker that may have written the row all the same: too few replicas had it in time, or the broker doesn't know.
_PERHAPS_WRITTEN: Final = (KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# The client's errors for rows that were purged when the producer was closed: they don't say why.
_GIVEN_UP: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_LATE: Final = KafkaError(KafkaError._MSG_TIMED_OUT, "no report in a third of the transaction timeout")


@dataclass(frozen=True, slots=True)
class Sent:
    """The first `len(sent_at)` rows were handed over, and are delivered unless listed below. After a commit none is listed.

    By position: refused: certain not to be written; may include the row after those that were handed over; innocent: refused because of
    another row of their batch; unanswered: may or may not be written. lost: why no further load is possible; None if one is.
    """

    sent_at: Sequence[int]
    partitions: Sequence[int | None]
    offsets: Sequence[int | None]
    refused: Mapping[int, Trouble] = field(default_factory=dict)
    innocent: frozenset[int] = frozenset()
    unanswered: Mapping[int, Trouble] = field(default_factory=dict)
    lost: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing is delivered. blamed: the topics at fault; empty if it is only known that the transaction as a whole failed."""

    trouble: Trouble
    blamed: Mapping[str, Trouble] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The first `len(sent_at)` rows may or may not be delivered, and no further transaction is possible."""

    sent_at: Sequence[int]
    trouble: Trouble


Outcome = Sent | Aborted | Unanswered


def in_transaction(session: Session, rows: pa.RecordBatch, batch_size: int, settings: PublisherSettings, clock: Clock) -> Outcome:
    """Sends rows in one transaction. Raises SessionLostError if nothing is delivered and no other transaction is possible."""
    producer = session.producer(batch_size, rows.column("topic")[0].as_py())
    phase = settings.phase_ms / 1000
    reports = Reports(rows.num_rows, settings.error_kinds)
    try:
        producer.begin_transaction()
        with collector_paused():
            hand_over(producer, rows, reports, time.monotonic() + phase, clock)
            # Flushed before the commit: the commit's own flush would leave reports unread.
            patience = 0 if reports.refusal else phase
            flush(producer, time.monotonic() + patience, lambda: reports.errors or _standing_error(producer))
    except KafkaException as exception:
        # Reading reports raises only what is fatal to the producer.
        raise session.lost(kafka_error(exception)) from None
    if not reports.all_delivered:
        return _abort(session, producer, rows, reports, settings)

    error = _commit(producer, time.monotonic() + phase)
    if error is None:
        return Sent(*reports.places)
    trouble = session.lost(error).trouble
    with suppress(SessionLostError):  # the abort fails if the commit has succeeded after all
        if error.txn_requires_abort() and session.abort():
            return Aborted(trouble)
    return Unanswered(reports.sent_at, trouble)


def without_transaction(session: Session, rows: pa.RecordBatch, batch_size: int, settings: PublisherSettings, clock: Clock) -> Sent:
    """Sends rows, and waits for their reports. Raises SessionLostError only when nothing was sent."""
    producer = session.producer(batch_size, rows.column("topic")[0].as_py())
    phase = settings.phase_ms / 1000
    reports = Reports(rows.num_rows, settings.error_kinds)
    fatal: KafkaError | None = None
    try:
        with collector_paused():
            hand_over(producer, rows, reports, time.monotonic() + phase, clock)
            flush(producer, time.monotonic() + phase, lambda: session.background.hopeless)
    except KafkaException as exception:
        # Fatal to the producer. The hand-over may have raised it, so it is unknown how many rows were handed over: all may have been.
        fatal = kafka_error(exception)
        reports.sent_at, reports.refusal = [clock()] * rows.num_rows, None
    fatal = session.background.hopeless or fatal
    if fatal is not None or not reports.all_delivered:
        # close() still waits for reports of rows that are on their way. The next load gets a new producer: this one would skip sequence
        # numbers after a refused batch.
        session.close()
    return _sorted_out(reports, settings, fatal)


def _standing_error(producer: Producer) -> KafkaError | None:
    """The error that the open transaction will end with, if any. begin_transaction raises it; if the transaction is in order, _STATE."""
    try:
        producer.begin_transaction()
    except KafkaException as exception:
        error = kafka_error(exception)
        return None if error.code() == KafkaError._STATE else error
    raise AssertionError("a transaction began inside another")


def _abort(session: Session, producer: Producer, rows: pa.RecordBatch, reports: Reports, settings: PublisherSettings) -> Aborted:
    """Aborts, and finds out what to blame. Raises SessionLostError for what concerns every transaction, such as a fence."""
    standing = _standing_error(producer)
    if standing is not None and standing.fatal():
        raise session.lost(standing)
    # These two errors only say that the transaction had failed before; `standing` has the reason.
    if reports.refusal is not None and reports.refusal[1].code() not in (KafkaError._STATE, KafkaError._FATAL):
        reports.refused(*reports.refusal)
    errors = dict(reports.errors)
    if (not errors and standing is None) or any(error.code() in _TIMEOUTS for error in errors.values()):
        without_report = [row for row in range(reports.handed) if reports.partitions[row] is None]
        for topic in topics_in(rows.take(pa.array(without_report, pa.int64()))):
            errors.setdefault(topic, _LATE)
    whole = standing or next(iter(errors.values()), _LATE)
    session.abort()
    return Aborted(settings.trouble_of(whole), {topic: settings.trouble_of(error) for topic, error in errors.items()})


def _commit(producer: Producer, deadline: float) -> KafkaError | None:
    """Commits; returns the error if the outcome is not a commit. Repeats the call while the client says that this may help."""
    while True:
        try:
            with fatal_as_kafka_exception():
                producer.commit_transaction(max(deadline - time.monotonic(), 0.02))
            return None
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.retriable() or time.monotonic() >= deadline:
                return error


def _sorted_out(reports: Reports, settings: PublisherSettings, fatal: KafkaError | None) -> Sent:
    """The outcome of each row that was handed over, by its report."""
    refused: dict[int, Trouble] = {}
    innocent: set[int] = set()
    unanswered: dict[int, Trouble] = {}
    for row in range(reports.handed):
        if reports.partitions[row] is not None:
            continue
        error = reports.by_row.get(row, _LATE)
        if error.code() in _GIVEN_UP:
            error = _LATE
        code, trouble = error.code(), settings.trouble_of(error)
        # An error code that is not listed doesn't mean that the broker has not written the row.
        is_refusal = code > 0 and code in settings.error_kinds and code not in _PERHAPS_WRITTEN
        if code == KafkaError._INVALID_DIFFERENT_RECORD:
            innocent.add(row)
        elif trouble.error.concerns != Concerns.CONNECTION or is_refusal:
            refused[row] = trouble
        else:
            unanswered[row] = trouble
    if reports.refusal is not None:
        refused[reports.handed] = settings.trouble_of(reports.refusal[1])
    lost = None if fatal is None else settings.trouble_of(fatal)
    return Sent(*reports.places, refused, frozenset(innocent), unanswered, lost)
