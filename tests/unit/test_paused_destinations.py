"""Destinations that were paused are tried together, catch up step by step, and their floors never move over what is still open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration.loop.due import Due, Waiting, Window
from orchestration.loop.health import SENDS, Reason
from orchestration.loop.lane_results import Done, LaneStop
from orchestration.loop.publish import Publish
from orchestration.loop.published import Published, Stop
from orchestration.loop.steps import StepReport
from orchestration.loop.window import TRIED_AT_ONCE, PausedDestination, UnknownSends
from tests.unit.loop_kit.steps import publish_step, state_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOOR = NOW - timedelta(hours=1)
TOPIC = "orders-billing-retry"
SECOND = timedelta(seconds=1)


class Publisher:
    """What a step would have said: there are rows, and this became of them."""

    def __init__(self, *, missing: tuple[str, ...] = (), upto: datetime | None = None, rows: int = 1, **became: Any) -> None:
        self.missing = missing
        self.upto = upto
        self.rows = rows
        self.became = became
        self.asked: list[Due] = []

    def waiting(self, *_: object, **__: object) -> Waiting:
        return Waiting(rows=self.rows, size=1, largest=1, next_due=None, batches=(1,))

    def run(self, what: Due, *_: object) -> Published:
        self.asked.append(what)
        stops = tuple(Stop(window.topic, "missing") for window in what.only if window.topic in self.missing)
        upto = what.upto if self.upto is None else min(what.upto, self.upto)
        return Published(upto=upto, complete=upto == what.upto, **{"stops": stops, **self.became})


class Paused:
    """A publish step with paused destinations."""

    def __init__(self, publisher: Publisher, **paused: PausedDestination) -> None:
        self.step: Publish = publish_step(publisher, NOW)
        self.report = StepReport(state_at(NOW, dict(paused) or {TOPIC: destination()}))

    @property
    def paused(self) -> Mapping[str, PausedDestination]:
        return self.report.state.window.paused

    def change(self, topic: str, **fields: Any) -> None:
        self.report.change(window=self.report.state.window.with_paused(topic, replace(self.paused[topic], **fields)))

    def publish(self, now: datetime = NOW) -> bool:
        """Tries what is to be tried; returns whether there is more to do at once."""
        self.report.has_more = False
        self.step.publish_paused(self.report, now)
        return self.report.has_more


def destination(until: datetime = NOW, pause: timedelta = SECOND, floor: datetime = FLOOR) -> PausedDestination:
    return PausedDestination(Reason("gone"), until, pause, floor=floor)


def test_each_success_reaches_twice_as_far_until_it_has_caught_up() -> None:
    publisher = Publisher(delivered=1)
    loop = Paused(publisher)
    while loop.paused:
        loop.publish()
    minutes = [(what.upto - what.floor) / timedelta(minutes=1) for what in publisher.asked]
    assert minutes == [1, 2, 4, 8, 16, 29]
    assert all(what.only == (Window(TOPIC, what.floor, what.upto),) and what.now == NOW for what in publisher.asked)


def test_a_destination_that_does_not_catch_up_is_tried_without_end() -> None:
    """Something of unknown outcome, or out of its turn, keeps the floor where it is, however often the rest is sent."""
    loop = Paused(Publisher(unknown=1, open_since=FLOOR, open_until=NOW + timedelta(minutes=1)))
    for second in range(100):
        loop.change(TOPIC, until=NOW)
        loop.publish(NOW + second * SECOND)
    assert loop.paused[TOPIC].floor == FLOOR


def test_a_failure_keeps_the_floor_and_starts_small_again() -> None:
    loop = Paused(Publisher(stops=(Stop(TOPIC, "still gone"),)))
    loop.change(TOPIC, reach=timedelta(hours=1))
    loop.publish()
    failed = loop.paused[TOPIC]
    assert (failed.floor, failed.reach, failed.why) == (FLOOR, timedelta(minutes=1), "still gone")
    assert failed.until == NOW + timedelta(seconds=2)


@pytest.mark.parametrize("open_after", [0, 30])
def test_its_floor_stays_under_a_send_whose_outcome_is_unknown(open_after: int) -> None:
    since = FLOOR + timedelta(seconds=open_after)
    loop = Paused(Publisher(unknown=1, open_since=since, open_until=NOW + timedelta(minutes=1)))
    loop.publish()
    assert loop.paused[TOPIC].floor == since


def test_what_is_unknown_of_its_last_step_is_not_forgotten_with_it() -> None:
    since, until = NOW - 30 * SECOND, NOW + 60 * SECOND
    loop = Paused(Publisher(unknown=1, open_since=since, open_until=until))
    loop.change(TOPIC, floor=NOW - timedelta(minutes=1))
    loop.publish()
    kept = loop.paused[TOPIC]
    assert (kept.floor, kept.until) == (since, until), "the loop's own floor has moved over it long ago"


def test_all_whose_pause_is_over_are_tried_in_one_step_and_each_by_its_own_window() -> None:
    publisher = Publisher(missing=("a", "c"), delivered=1)
    days_ago = NOW - timedelta(days=9)
    loop = Paused(publisher, a=destination(), b=destination(), c=destination(floor=days_ago), d=destination(NOW + SECOND))
    loop.publish()
    minute = timedelta(minutes=1)
    (what,) = publisher.asked
    assert what.only == (Window("a", FLOOR, FLOOR + minute), Window("b", FLOOR, FLOOR + minute), Window("c", days_ago, days_ago + minute))
    # what lies between is not read
    assert what.times == [(days_ago, days_ago + minute), (FLOOR, FLOOR + minute)]
    assert {topic: (one.floor, one.until - NOW) for topic, one in loop.paused.items()} == {
        "a": (FLOOR, 2 * SECOND),
        "b": (FLOOR + minute, timedelta()),
        "c": (days_ago, 2 * SECOND),
        "d": (FLOOR, SECOND),
    }


def test_sixty_missing_destinations_take_one_step_a_minute() -> None:
    minute = timedelta(minutes=1)
    topics = {f"pod-{number}": destination(NOW + number * SECOND, minute) for number in range(60)}
    publisher = Publisher(missing=tuple(topics))
    loop = Paused(publisher, **topics)
    # one whole round until their pauses end together, then ten more
    for second in range(60 * 11):
        loop.publish(NOW + second * SECOND)
        if second == 59:
            publisher.asked.clear()
    assert [len(what.only) for what in publisher.asked] == [60] * 10
    assert set(loop.paused) == set(topics)


def test_a_step_tries_a_bounded_number_and_the_next_one_the_rest() -> None:
    topics = {f"t{number:04}": destination() for number in range(TRIED_AT_ONCE + 1)}
    publisher = Publisher(missing=tuple(topics))
    loop = Paused(publisher, **topics)
    for _ in range(2):
        loop.publish()
    assert [len(what.only) for what in publisher.asked] == [TRIED_AT_ONCE, 1]
    assert {one.until for one in loop.paused.values()} == {NOW + 2 * SECOND}


def test_a_step_that_was_cut_goes_on_from_where_it_was_cut() -> None:
    cut = FLOOR + 30 * SECOND
    later = FLOOR + timedelta(minutes=10)
    loop = Paused(Publisher(upto=cut, delivered=1), a=destination(), b=destination(floor=later))
    rest = loop.publish()
    assert {topic: (one.floor, one.until, one.reach) for topic, one in loop.paused.items()} == {
        "a": (cut, NOW, timedelta(minutes=2)),
        "b": (later, NOW, timedelta(minutes=1)),
    }
    assert rest


def test_one_for_which_nothing_waits_is_forgotten_without_a_send() -> None:
    publisher = Publisher(rows=0)
    loop = Paused(publisher, gone=destination(floor=NOW - timedelta(days=30)))
    for _ in range(20):
        loop.publish()
    assert (loop.paused, publisher.asked) == ({}, [])


def test_what_stops_kafka_as_a_whole_fails_all_of_them() -> None:
    loop = Paused(Publisher(stops=(Stop(None, "no brokers"),)), a=destination(), b=destination())
    loop.publish()
    assert {(one.floor, one.why, one.until) for one in loop.paused.values()} == {(FLOOR, "gone", NOW + 2 * SECOND)}


def lane_says(done: Done) -> tuple[Publish, StepReport]:
    """A publish step that is told what the timed lane has done."""
    step = publish_step(Publisher(delivered=5), NOW)
    step.hand_over.lane._done = done
    return step, StepReport(state_at(FLOOR))


def test_a_destination_that_took_nothing_of_the_timed_lane_keeps_the_floor_of_what_the_bulk_lane_has() -> None:
    step, report = lane_says(Done().with_stop(LaneStop(TOPIC, "gone", "GONE", 3, NOW - SECOND)))
    step._note_lane(report, NOW)
    step.publish_due(report, NOW)
    assert report.state.window.floor == NOW
    assert report.state.window.paused[TOPIC].floor == FLOOR


@pytest.mark.parametrize(
    ("done", "recovers"),
    [(Done(delivered=1), True), (Done(), False), (Done(delivered=1).with_stop(LaneStop(None, "no brokers", "_ALL", -1, NOW)), False)],
)
def test_what_the_timed_lane_delivers_shows_that_kafka_takes_sends(done: Done, recovers: bool) -> None:
    step, report = lane_says(done)
    report.failed(SENDS, Reason("no brokers"))
    step._note_lane(report, NOW)
    assert report.has_failed(SENDS) is not recovers


def test_sends_of_unknown_outcome_are_remembered_though_the_step_fails() -> None:
    since, until = NOW - SECOND, NOW + 60 * SECOND
    step, report = lane_says(Done(failed=1, unknown=1, open_since=since, open_until=until))
    # `undecided`, which is asked because of the failed one, is not there
    result = step.run(report.state, NOW)
    assert isinstance(result.failure, AttributeError)
    assert result.state.window.unknown == (UnknownSends(since, until),)
