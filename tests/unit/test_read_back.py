"""When topics are read back, and what follows if they can't be; tests/loop/test_promise_once.py has what is found there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import ClusterError, Partition, Topic
from orchestration.loop.due import Due
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import SENDS, Reason
from orchestration.loop.hold import hold
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


def test_a_loop_that_is_not_in_charge_any_more_ends() -> None:
    def fence() -> None:
        raise SupersededError(TROUBLE, 8)

    reads = read_back(fence)
    reads.after(NOW)
    report = StepReport(state_at(NOW))
    assert not reads.run(report, NOW)
    assert report.superseded_by == 8


class Brokers:
    """A cluster with topics of two partitions, in each of which 5 records were written since."""

    def __init__(self, *, silent: Collection[Partition] = (), stable: Mapping[Partition, int] | None = None) -> None:
        self.silent, self.stable = silent, stable or {}

    def describe(self, names: Iterable[str], _: set[str]) -> dict[str, Topic]:
        return {name: Topic(name, name, 2) for name in names}

    def since(self, partitions: Iterable[Partition], _: int, silent: list[Partition]) -> dict[Partition, tuple[int, int]]:
        wanted = list(partitions)
        silent += [one for one in wanted if one in self.silent]
        return {one: (0, 5) for one in wanted if one not in self.silent}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {one: self.stable.get(one, 5) for one in partitions}


def reading(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> tuple[ReadBack, list[set[str]]]:
    """A ReadBack of the topics a and b, and the topics of which it records, each time, what was found."""
    reads = read_back()
    reads.leadership.cluster = cast(Any, brokers)
    reads.leadership.stored = cast(Any, SimpleNamespace(spark=None))
    recorded: list[set[str]] = []

    def records(_: object, report: object, found: set[str], *__: object) -> None:
        recorded.append(found)

    monkeypatch.setattr("orchestration.loop.read_back.sent_in", lambda _, __, ranges: {partition.topic for partition in ranges})
    monkeypatch.setattr(ReadBack, "_destinations", lambda *_: {"a", "b"})
    monkeypatch.setattr(ReadBack, "_not_read", lambda *_: {})
    monkeypatch.setattr(ReadBack, "_record_found", records)
    monkeypatch.setattr("orchestration.loop.read_back.F", SimpleNamespace(col=lambda _: SimpleNamespace(isin=lambda *_: None)))
    return reads, recorded


def test_a_destination_without_an_answer_is_paused_until_it_is_read_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, recorded = reading(monkeypatch, Brokers(silent=[Partition("a", "a", 1)]))
    reads.after(NOW - SECOND)
    report = StepReport(state_at(NOW))
    assert reads.run(report, NOW)
    assert (reads.since, reads.earliest, [*reads.unread]) == (None, NOW - SECOND, ["a"])
    assert {topic: one.floor for topic, one in report.state.window.paused.items()} == {"a": report.state.window.floor}
    # its other partition may be read, but nothing is concluded from that
    assert recorded == [{"a", "b"}]
    # a state that was read from the tables again doesn't know the pause
    assert [*reads.with_unread_paused(state_at(NOW).window, NOW).paused] == ["a"]
    # sends of this loop that begin later may have no result either: what was sent before must be read, too
    reads.after(NOW)
    assert reads.earliest == NOW - SECOND
    reads.leadership.cluster = cast(Any, Brokers())
    assert reads.run(report, NOW)
    assert reads.earliest is None


@pytest.mark.parametrize(
    "brokers",
    [
        Brokers(silent=[Partition("a", "a", 0)]),
        # somebody's transaction is open: what was sent may lie behind its first record
        Brokers(stable={Partition("a", "a", 0): 3}),
    ],
)
def test_a_destination_is_read_again_until_it_can_be_read_to_its_end(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> None:
    reads, recorded = reading(monkeypatch, brokers)
    reads.unread = {"a": Unread(NOW - SECOND, Reason("no answer"))}
    report = StepReport(state_at(NOW))
    assert reads.again(report, ["b"], NOW) == {}
    assert [*reads.again(report, ["a", "b"], NOW)] == ["a"]
    assert (recorded, [*reads.unread]) == ([], ["a"])
    reads.leadership.cluster = cast(Any, Brokers())
    assert reads.again(report, ["a", "b"], NOW) == {}
    assert (recorded, reads.unread, reads.earliest) == ([{"a"}], {}, None)


def test_what_may_have_been_sent_is_not_held_by_a_circuit_breaker() -> None:
    held: list[Due] = []

    def holds(_: object, what: Due, __: object) -> tuple[int, int]:
        held.append(what)
        return 0, 0

    breakers = SimpleNamespace(of=lambda _: nullcontext(), open=["billing:orders"], hold=holds)
    hand_over = SimpleNamespace(withdraw=lambda **_: None, in_lane=frozenset)
    bulk_lane = SimpleNamespace(waiting=lambda *_, **__: None)
    hold(StepReport(state_at(NOW)), NOW, cast(Any, breakers), cast(Any, hand_over), cast(Any, bulk_lane), {"a": "no answer"})
    assert [what.without for what in held] == [("a",)]


def test_while_a_destination_is_unread_commands_wait_and_a_start_would_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step = publish_step(cast(Any, None), NOW)
    step.read_back.unread = {"a": Unread(NOW - SECOND, Reason("no answer"))}
    assert (step.unrecorded_since(NOW), step.knows_what_was_sent, step.has_unrecorded) == (NOW - SECOND, False, True)
    # but nothing else is read before each intake
    monkeypatch.setattr(ReadBack, "run", lambda *_: pytest.fail("it reads"))
    assert step.find_sent(state_at(NOW), NOW).failure is None


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
    step.read_back = cast(Any, SimpleNamespace(run=read_back, since=NOW, earliest=NOW))
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
    step.read_back = cast(Any, SimpleNamespace(since=None, earliest=None))
    assert step.find_sent(state_at(NOW), NOW).state == state_at(NOW)
    assert done == []
