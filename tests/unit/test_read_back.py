"""When topics are read back, and what follows if they can't be; tests/loop/test_promise_once.py has what is found there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import ClusterError
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import SENDS
from orchestration.loop.publish import Publish
from orchestration.loop.read_back import ReadBack
from orchestration.loop.steps import StepReport
from publisher import SessionLostError, SupersededError
from publisher.errors import Concerns, ErrorKind, Trouble
from tests.unit.loop_kit.steps import StoppedClock, publish_step, state_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TROUBLE = Trouble(ErrorKind(-185, "_TIMED_OUT", "retriable", Concerns.CONNECTION), "no answer")


def read_back(fence: Callable[[], None] = lambda: None, *, transactions: bool = True) -> ReadBack:
    """A ReadBack whose loop fences itself with a function of the test."""
    leadership = cast(Any, SimpleNamespace(settings=SimpleNamespace(transactions=transactions), fence_own=fence))
    clock = cast(Any, StoppedClock(NOW))
    return ReadBack(leadership, HandOver(leadership, clock, timedelta(), transactions=True), clock)


def test_the_earliest_moment_counts_and_a_send_of_this_loop_has_to_be_fenced() -> None:
    reads = read_back()
    reads.after(NOW - 5 * SECOND, is_fenced=True)
    assert (reads.since, reads.is_fenced) == (NOW - 5 * SECOND, True)
    reads.after(NOW)
    assert (reads.since, reads.is_fenced) == (NOW - 5 * SECOND, False)


def test_without_transactions_nothing_is_read_back() -> None:
    reads = read_back(transactions=False)
    reads.after(NOW)
    assert reads.since is None
    assert reads.run(StepReport(state_at(NOW)), NOW)


@pytest.mark.parametrize("error", [ClusterError("Kafka did not answer", "_TIMED_OUT"), SessionLostError(TROUBLE)])
def test_if_kafka_gives_no_answer_it_is_tried_again_and_nothing_is_sent_before(error: Exception) -> None:
    def fence() -> None:
        raise error

    reads = read_back(fence)
    reads.after(NOW - SECOND)
    report = StepReport(state_at(NOW))
    assert not reads.run(report, NOW)
    assert report.has_failed(SENDS)
    assert reads.since == NOW - SECOND
    assert not reads.hand_over.lane._is_held, "the lane waits for ever"


def test_a_loop_that_is_not_in_charge_any_more_ends() -> None:
    def fence() -> None:
        raise SupersededError(TROUBLE, 8)

    reads = read_back(fence)
    reads.after(NOW)
    report = StepReport(state_at(NOW))
    assert not reads.run(report, NOW)
    assert report.superseded_by == 8


def test_what_has_no_result_begins_with_the_earliest_send_that_may_have_none() -> None:
    step = publish_step(cast(Any, None), NOW)
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW, True, False)
    step.unrecorded = cast(Any, SimpleNamespace(since=NOW - SECOND))
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW - SECOND, False, True)
    step.unrecorded = None
    step.read_back.after(NOW - 3 * SECOND)
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW - 3 * SECOND, False, True)
    # records in Kafka have the time of the wall clock, which may be behind the loop's
    step.clock = cast(Any, SimpleNamespace(ahead=timedelta(hours=1)))
    assert step.unrecorded_since(NOW) == NOW - 3 * SECOND - timedelta(hours=1)


def finding(superseded_by: int | None = None, outcome: bool = True) -> tuple[Publish, list[str]]:
    """A publish step that has something to read back, and what it does about it."""
    step = publish_step(None, NOW)
    done: list[str] = []

    def read_back(*_: object) -> bool:
        done.append("read back")
        return outcome

    ledgers = SimpleNamespace(superseded_by=lambda: superseded_by, batch=5)
    step.undecided = cast(Any, SimpleNamespace(stored=SimpleNamespace(ledgers=ledgers)))
    step.breakers = cast(Any, SimpleNamespace(of=lambda _: nullcontext(), sent=lambda before, _: done.append(f"probes since {before}")))
    step.read_back = cast(Any, SimpleNamespace(run=read_back, since=NOW))
    return step, done


def test_probes_among_what_was_found_before_reports_are_taken_in_are_seen() -> None:
    step, done = finding()
    step.find_sent(state_at(NOW), NOW)
    assert done == ["read back", "probes since 5"]


def test_what_can_not_be_found_now_keeps_reports_from_nothing() -> None:
    step, done = finding(outcome=False)
    result = step.find_sent(state_at(NOW), NOW)
    assert done == ["read back"]
    assert result.failure is None
    assert result.state.unrecorded_since == NOW


def test_a_loop_that_was_superseded_reads_nothing_back_and_fences_nobody() -> None:
    step, done = finding(superseded_by=7)
    result = step.find_sent(state_at(NOW), NOW)
    assert (result.superseded_by, done) == (7, [])


def test_when_all_is_known_nothing_is_asked() -> None:
    step, done = finding()
    step.read_back = cast(Any, SimpleNamespace(since=None))
    assert step.find_sent(state_at(NOW), NOW).state == state_at(NOW)
    assert done == []
