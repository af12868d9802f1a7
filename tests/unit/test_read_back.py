"""When topics are read back, and what follows if they can't be; tests/loop/test_promise_once.py has what is found there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import ClusterError, Partition, Topic
from orchestration.kafka.sent_records import MARGIN
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import SENDS, Reason
from orchestration.loop.publish import Publish
from orchestration.loop.read_back import ReadBack, Unread
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


def test_a_send_of_the_lane_that_began_earlier_is_read_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fence() -> None:
        raise ClusterError("Kafka did not answer", "_TIMED_OUT")

    reads = read_back(fence)
    # its result, which says that the outcome is unknown, is recorded when the lane is held
    monkeypatch.setattr(reads.hand_over.lane, "unrecorded_since", lambda: NOW - 90 * SECOND)
    reads.after(NOW - SECOND)
    assert not reads.run(StepReport(state_at(NOW)), NOW)
    assert reads.since == NOW - 90 * SECOND


def test_a_loop_that_is_not_in_charge_any_more_ends() -> None:
    def fence() -> None:
        raise SupersededError(TROUBLE, 8)

    reads = read_back(fence)
    reads.after(NOW)
    report = StepReport(state_at(NOW))
    assert not reads.run(report, NOW)
    assert report.superseded_by == 8


A0, A1 = Partition("a", "a", 0), Partition("a", "a", 1)


class Brokers:
    """A cluster with topics of two partitions, in each of which 5 records were written since."""

    def __init__(self, *, silent: Collection[Partition] = (), stable: int = 5, end: int = 5) -> None:
        self.silent, self.stable, self.end = silent, stable, end
        self.asked: dict[str, int] = {}

    def describe(self, names: Iterable[str], _: set[str]) -> dict[str, Topic]:
        return {name: Topic(name, name, 2) for name in names}

    def since(self, moments: Mapping[Partition, int], silent: list[Partition]) -> dict[Partition, tuple[int, int]]:
        self.asked = {one.topic: millis for one, millis in moments.items()}
        silent += [one for one in moments if one in self.silent]
        return {one: (0, self.end) for one in moments if one not in self.silent}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {one: self.stable if one.topic == "a" else self.end for one in partitions}


@dataclass
class Reading:
    """A ReadBack of the topics a and b. recorded: for each read, the topics that were read to their ends, and the ranges of a."""

    reads: ReadBack
    brokers: Brokers
    report: StepReport
    recorded: list[tuple[set[str], dict[Partition, tuple[int, int]]]] = field(default_factory=list)

    def run(self) -> None:
        self.reads._again_at = 0
        assert self.reads.run(self.report, NOW)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    reading = Reading(read_back(), Brokers(), StepReport(state_at(NOW)))
    reading.reads.leadership.cluster = cast(Any, reading.brokers)
    monkeypatch.setattr(ReadBack, "_destinations", lambda *_: {"a", "b"})

    def record(_: object, __: object, ranges: Mapping[Partition, tuple[int, int]], topics: set[str], *___: object) -> Mapping[str, Reason]:
        reading.recorded.append((topics, {one: offsets for one, offsets in ranges.items() if one.topic == "a"}))
        return {}

    monkeypatch.setattr(ReadBack, "_read_and_record", record)
    return reading


def test_a_destination_without_an_answer_is_paused_until_it_is_read_and_the_others_are_not(reading: Reading) -> None:
    reading.brokers.silent = [A1]
    reading.reads.after(NOW - SECOND)
    reading.run()
    assert (reading.reads.since, reading.reads.earliest, [*reading.reads.unread]) == (None, NOW - SECOND, ["a"])
    assert {topic: one.floor for topic, one in reading.report.state.window.paused.items()} == {"a": reading.report.state.window.floor}
    # what lies in its other partition was sent; what does not may still lie in this one
    assert reading.recorded == [({"b"}, {A0: (0, 5)})]
    reading.run()
    assert len(reading.recorded) == 1
    reading.brokers.silent = []
    reading.run()
    assert reading.recorded[1:] == [({"a"}, {A0: (0, 5), A1: (0, 5)})]
    assert (reading.reads.unread, reading.reads.earliest) == ({}, None)
    assert reading.report.state.window.paused["a"].until == NOW


def test_what_others_write_meanwhile_needs_not_be_read(reading: Reading) -> None:
    reading.brokers.stable = 3
    reading.reads.unread = {"a": Unread(NOW - SECOND, Reason("a transaction is open"), {A0: 5, A1: 5})}
    reading.run()
    assert (reading.recorded, [*reading.reads.unread]) == ([], ["a"])
    # there is always a transaction that is open, but none that began before the slots were fenced
    reading.brokers.end, reading.brokers.stable = 9, 5
    reading.run()
    assert (reading.recorded, reading.reads.unread) == ([({"a"}, {A0: (0, 5), A1: (0, 5)})], {})


def test_sends_that_begin_later_are_read_from_there_on_and_the_destination_from_where_it_was(reading: Reading) -> None:
    reading.brokers.silent = [A0]
    reading.reads.unread = {"a": Unread(NOW - SECOND, Reason("no answer"), {})}
    reading.reads.after(NOW)
    assert reading.reads.earliest == NOW - SECOND
    reading.run()
    assert reading.brokers.asked["b"] - reading.brokers.asked["a"] == 1_000
    assert (reading.reads.since, reading.reads.unread["a"].since) == (None, NOW - SECOND)


def test_a_wall_clock_that_is_set_right_meanwhile_hides_nothing(reading: Reading) -> None:
    reading.reads.clock = cast(Any, SimpleNamespace(ahead=timedelta(hours=1)))
    reading.reads.after(NOW)
    reading.reads.clock = cast(Any, StoppedClock(NOW))
    reading.run()
    assert reading.brokers.asked["b"] == ((NOW - timedelta(hours=1) - MARGIN).timestamp()) * 1_000


def test_a_broker_that_gives_no_answer_does_not_take_up_all_the_time(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.brokers.silent = [A0]
    reading.reads.unread = {"a": Unread(NOW, Reason("no answer"), {})}
    monotonic = iter([100.0, 104.0, 104.0, 139.0, 141.0])
    monkeypatch.setattr("orchestration.loop.read_back.time.monotonic", lambda: next(monotonic))
    reading.reads._run_again(reading.report, NOW)
    assert not reading.reads.is_due
    assert reading.reads.is_due


def test_while_a_destination_is_unread_commands_wait_and_a_start_would_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step = publish_step(cast(Any, None), NOW)
    step.read_back.unread = {"a": Unread(NOW - SECOND, Reason("no answer"), {})}
    step.read_back._again_at = time.monotonic() + 60
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW - SECOND, False, True)
    # what can't be read is not asked for all the time
    monkeypatch.setattr(ReadBack, "run", lambda *_: pytest.fail("it reads"))
    assert step.find_sent(state_at(NOW), NOW).failure is None


def test_what_has_no_result_begins_with_the_earliest_send_that_may_have_none() -> None:
    step = publish_step(cast(Any, None), NOW)
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW, True, False)
    step.unrecorded = cast(Any, SimpleNamespace(since=NOW - SECOND))
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW - SECOND, False, True)
    # records in Kafka have the time of the wall clock, which may be behind the loop's
    step.clock = step.read_back.clock = cast(Any, SimpleNamespace(ahead=timedelta(hours=1)))
    assert step.unrecorded_since(NOW) == NOW - SECOND - timedelta(hours=1)
    step.unrecorded = None
    step.read_back.after(NOW - 3 * SECOND)
    since = NOW - 3 * SECOND - timedelta(hours=1)
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (since, False, True)


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
    step.read_back = cast(Any, SimpleNamespace(run=read_back, since=NOW, earliest=NOW, is_due=True))
    return step, done


def test_a_process_may_end_while_it_reads_back() -> None:
    step, done = finding()
    step.read_back.run = lambda *_: done.append(f"sending: {step.sending.locked()}")  # type: ignore[method-assign, assignment]
    step.find_sent(state_at(NOW), NOW)
    assert done == ["sending: False"]


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
    step.read_back = cast(Any, SimpleNamespace(since=None, earliest=None, is_due=False))
    assert step.find_sent(state_at(NOW), NOW).state == state_at(NOW)
    assert done == []
