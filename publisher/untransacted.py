"""One load without a transaction: each row's outcome is its own report.

The idempotent producer keeps order and writes nothing twice while it tries; what it can't say is what became of a row that
got no answer. Such a row is neither delivered nor refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from publisher.error_kinds import Scope
from publisher.gc_pause import collector_paused
from publisher.handover import HandedOver, flush, hand_over
from publisher.reports import Reports
from publisher.session import Session
from publisher.settings import PublisherSettings
from publisher.trouble import Trouble, kafka_error, trouble_of

# Answers of a broker that may have written the row all the same: too few copies in time, or it doesn't know.
_PERHAPS_WRITTEN: Final = frozenset(
    {KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)

# What the client says of rows that we no longer waited for.
_GIVEN_UP: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The first `len(sent_at)` rows were handed over. Those that are in none of the mappings are delivered."""

    sent_at: list[int]
    partitions: list[int | None]
    offsets: list[int | None]

    refused: Mapping[int, Trouble] = field(default_factory=dict)
    """By position, rows that are certain not to be written. May hold the row after those that were handed over."""

    innocent: frozenset[int] = frozenset()
    """Rows that were refused for what another row of their batch is."""

    unanswered: Mapping[int, Trouble] = field(default_factory=dict)
    """Rows that may or may not be written."""

    lost: Trouble | None = None
    """Why no further load is possible, if none is."""


def attempt(
    session: Session,
    rows: pa.RecordBatch,
    batch_size: int,
    settings: PublisherSettings,
    clock: Callable[[], int],
) -> Acknowledged:
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
        # Fatal to the producer, and nobody knows how far the hand-over came.
        fatal = kafka_error(exception)
        handed = HandedOver(rows.num_rows, [clock()] * rows.num_rows, None)
    fatal = session.hopeless or fatal
    places = reports.partitions[: handed.rows], reports.offsets[: handed.rows]
    if handed.refusal is None and fatal is None and reports.all_delivered(handed.rows):
        return Acknowledged(handed.sent_at, *places)
    # What is reported now was on its way; and what the client would count on after a refused batch, a new one counts anew.
    session.close()
    return _sorted_out(handed, reports, settings, fatal)


def _sorted_out(handed: HandedOver, reports: Reports, settings: PublisherSettings, fatal: KafkaError | None) -> Acknowledged:
    late = KafkaError(KafkaError._MSG_TIMED_OUT, "no report in a third of the transaction timeout")
    refused: dict[int, Trouble] = {}
    innocent: set[int] = set()
    unanswered: dict[int, Trouble] = {}
    for row in range(handed.rows):
        if reports.partitions[row] is not None:
            continue
        error = reports.by_row.get(row, late)
        if error.code() in _GIVEN_UP:
            error = late
        trouble = trouble_of(error, settings)
        if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            innocent.add(row)
        elif trouble.scope != Scope.CONNECTION or _says_no(error, settings):
            refused[row] = trouble
        else:
            unanswered[row] = trouble
    if handed.refusal is not None:
        refused[handed.rows] = trouble_of(handed.refusal[1], settings)
    return Acknowledged(
        handed.sent_at,
        reports.partitions[: handed.rows],
        reports.offsets[: handed.rows],
        refused,
        frozenset(innocent),
        unanswered,
        trouble_of(fatal, settings) if fatal is not None else None,
    )


def _says_no(error: KafkaError, settings: PublisherSettings) -> bool:
    """Whether a broker has said that it did not write; a code that isn't listed says nothing."""
    code = error.code()
    return code > 0 and code in settings.error_kinds and code not in _PERHAPS_WRITTEN
