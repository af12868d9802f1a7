"""What doesn't work is left alone for growing pauses, and is shown with Kafka's name of the error."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from orchestration.loop.health import KAFKA, LEDGERS, SENDS, Health, Pause, Reason, destination, source
from orchestration.status import Entry
from tests.log_events import logged

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (50, 60)], ids=lambda number: str(number)
)
def test_each_failure_doubles_the_pause_up_to_a_minute(failures: int, pause: int) -> None:
    health = Health(lambda: NOW)
    for _ in range(failures):
        health.failed(KAFKA, Reason("no answer"))
    assert health[KAFKA].until == NOW + timedelta(seconds=pause)


@pytest.mark.parametrize(
    ("seconds", "unsure", "may"),
    [(0, False, False), (0.9, False, False), (1, False, True), (60, False, True), (1, True, False)],
    ids=["at once", "before it is over", "when it is over", "long after", "while it isn't known how far the tables are"],
)
def test_a_part_may_be_used_when_its_pause_is_over(seconds: float, unsure: bool, may: bool) -> None:
    clock = Clock()
    health = Health(clock.now)
    health.failed(LEDGERS, Reason("database is locked"))
    health.unsure = unsure
    clock.seconds = seconds
    assert health.may(LEDGERS) is may
    assert health.may_be_tried(LEDGERS) is (seconds >= 1)
    assert health.may(SENDS), "another part works"


def test_a_part_that_works_again_begins_with_a_short_pause(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(lambda: NOW)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            health.failed(source("reports"), Reason("no record within 10 s"))
        health.recovered(source("reports"))
        health.recovered(source("reports"))
    assert not health
    # what is not new is not said again
    part = {"part": "source", "name": "reports"}
    assert logged(caplog, "part_failed") == [{**part, "retry_at": "2026-01-01T12:00:01.000Z", "reason": "no record within 10 s"}]
    assert logged(caplog, "part_recovered") == [part]
    health.failed(source("reports"), Reason("again"))
    assert health[source("reports")].pause == timedelta(seconds=1)


def test_what_is_shown_are_the_parts_and_the_paused_destinations_each_with_the_name_of_its_error() -> None:
    health = Health(lambda: NOW)
    health.failed(KAFKA, Reason("Kafka did not tell its topics (_TRANSPORT)", "_TRANSPORT"))
    paused = {"orders-retry": Pause(Reason("there is no such topic", "UNKNOWN_TOPIC_OR_PART"), NOW)}
    assert health.entries(paused) == [
        Entry("kafka", "", "Kafka did not tell its topics (_TRANSPORT)", "_TRANSPORT"),
        Entry("destination", "orders-retry", "there is no such topic", "UNKNOWN_TOPIC_OR_PART"),
    ]
    assert [str(part) for part in (KAFKA, source("a b"), destination("t"))] == ["kafka", "source a b", "destination t"]
