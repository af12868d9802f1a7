"""One transaction: hand rows over, wait for their reports, commit. Says what became of all of them together.

The outcome belongs to the transaction. Reports of single rows only tell where a row lies once the commit has returned,
and whom to blame when it can't be made: a report of success inside an aborted transaction means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.errors import SessionLostError
from publisher.gc_pause import collector_paused
from publisher.handover import HandedOver, flush, hand_over
from publisher.reports import Reports
from publisher.session import Session
from publisher.settings import PublisherSettings
from publisher.splitting import topics_in
from publisher.trouble import Trouble, kafka_error, trouble_of, untangled

# The least time that a commit is given, in seconds.
_GLANCE: Final = 0.02

# Errors that only say that time has passed: every topic that still waits is in the same position.
_TIMEOUTS: Final = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT})

# What a call says when the reason is the state of the transaction, which knows it better.
_ASK_THE_TRANSACTION: Final = frozenset({KafkaError._STATE, KafkaError._FATAL})


@dataclass(frozen=True, slots=True)
class Committed:
    """The first `len(sent_at)` rows are delivered."""

    sent_at: list[int]
    partitions: list[int | None]
    offsets: list[int | None]


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


Verdict = Committed | Aborted | Unanswered


def attempt(
    session: Session,
    rows: pa.RecordBatch,
    batch_size: int,
    settings: PublisherSettings,
    clock: Callable[[], int],
) -> Verdict:
    """Sends rows in one transaction. Raises SessionLostError when it failed in a way that allows no other."""
    producer = session.producer(batch_size, rows.column("topic")[0].as_py())
    try:
        producer.begin_transaction()
    except KafkaException as exception:
        raise session.lost(kafka_error(exception)) from None

    phase = settings.phase_ms / 1000
    reports = Reports(rows.num_rows, settings.error_kinds)
    try:
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
        return Committed(handed.sent_at, reports.partitions[: handed.rows], reports.offsets[: handed.rows])
    trouble = session.lost(error).trouble
    if error.txn_requires_abort() and _aborted(session):
        return Aborted(trouble)
    return Unanswered(handed.sent_at, trouble)


def _aborted(session: Session) -> bool:
    """Whether an abort after a failed commit is confirmed; it may have failed because the commit had not."""
    try:
        return session.abort()
    except SessionLostError:
        return False


def _standing_error(producer: Producer) -> KafkaError | None:
    """The error that the open transaction is already known to end with, if any.

    The client tells it to whoever tries to begin another; a transaction in good order merely refuses that.
    """
    try:
        producer.begin_transaction()
    except KafkaException as exception:
        error = kafka_error(exception)
        return None if error.code() == KafkaError._STATE else error
    raise AssertionError("a transaction began inside another")


def _abort(
    session: Session,
    producer: Producer,
    rows: pa.RecordBatch,
    handed: HandedOver,
    reports: Reports,
    settings: PublisherSettings,
) -> Aborted:
    """Aborts, and finds out whom to blame.

    Raises SessionLostError for what concerns every transaction, a fence for instance.
    """
    standing = _standing_error(producer)
    if standing is not None and standing.fatal():
        raise session.lost(standing)
    if handed.refusal is not None and handed.refusal[1].code() not in _ASK_THE_TRANSACTION:
        reports.refused(*handed.refusal)
    errors = dict(reports.errors)
    late = KafkaError(KafkaError._MSG_TIMED_OUT, "no report in a third of the transaction's timeout")
    if (not errors and standing is None) or any(error.code() in _TIMEOUTS for error in errors.values()):
        for topic in topics_in(_without_report(rows, handed, reports)):
            errors.setdefault(topic, late)
    blamed = {topic: trouble_of(error, settings) for topic, error in errors.items()}
    whole = trouble_of(standing or next(iter(errors.values()), late), settings)
    session.abort()
    return Aborted(whole, blamed)


def _without_report(rows: pa.RecordBatch, handed: HandedOver, reports: Reports) -> pa.RecordBatch:
    silent = [partition is None for partition in reports.partitions[: handed.rows]]
    return rows.slice(0, handed.rows).filter(pa.array(silent, pa.bool_()))


def _commit(producer: Producer, deadline: float) -> KafkaError | None:
    """None when the commit returned. Repeats it while the client says that it may still be answered."""
    while True:
        try:
            with untangled():
                producer.commit_transaction(max(deadline - time.monotonic(), _GLANCE))
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.retriable() or time.monotonic() >= deadline:
                return error
        else:
            return None
