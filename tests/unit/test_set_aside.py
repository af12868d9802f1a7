"""Destinations that were set aside are tried together, catch up step by step, and their floors never move over what is still open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration.loop.loop import _TRIED_AT_ONCE, Loop, SetAside, Tick
from orchestration.loop.publish import Due, Published, Stop, Waiting, Window
from orchestration.settings import load_settings

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


class Clock:
    def now(self) -> datetime:
        return NOW


def loop_with(publisher: Publisher, **set_aside: SetAside) -> Loop:
    loop = Loop(load_settings())
    loop.clock = Clock()  # type: ignore[assignment]
    loop.publisher = publisher  # type: ignore[assignment]
    loop.floor = NOW
    loop._set_aside = dict(set_aside) or {TOPIC: SetAside("gone", NOW, floor=FLOOR)}
    return loop


def aside(until: datetime = NOW, pause: timedelta = SECOND, floor: datetime = FLOOR) -> SetAside:
    return SetAside("gone", until, pause, floor=floor)


def test_each_success_reaches_twice_as_far_until_it_has_caught_up() -> None:
    publisher = Publisher(delivered=1)
    loop = loop_with(publisher)
    while loop._set_aside:
        loop._publish_set_aside(Tick(), NOW)
    minutes = [(what.upto - what.floor) / timedelta(minutes=1) for what in publisher.asked]
    assert minutes == [1, 2, 4, 8, 16, 29]
    assert all(what.only == (Window(TOPIC, what.floor, what.upto),) and what.now == NOW for what in publisher.asked)


def test_a_failure_keeps_the_floor_and_starts_small_again() -> None:
    loop = loop_with(Publisher(stops=(Stop(TOPIC, "still gone"),)))
    loop._set_aside[TOPIC].reach = timedelta(hours=1)
    loop._publish_set_aside(Tick(), NOW)
    failed = loop._set_aside[TOPIC]
    assert (failed.floor, failed.reach, failed.why) == (FLOOR, timedelta(minutes=1), "still gone")
    assert failed.until == NOW + timedelta(seconds=2)


@pytest.mark.parametrize("open_after", [0, 30])
def test_its_floor_stays_under_a_send_whose_outcome_is_unknown(open_after: int) -> None:
    since = FLOOR + timedelta(seconds=open_after)
    loop = loop_with(Publisher(unknown=1, open_since=since, open_until=NOW + timedelta(minutes=1)))
    loop._publish_set_aside(Tick(), NOW)
    assert loop._set_aside[TOPIC].floor == since


def test_what_is_unknown_of_its_last_step_is_not_forgotten_with_it() -> None:
    since, until = NOW - 30 * SECOND, NOW + 60 * SECOND
    loop = loop_with(Publisher(unknown=1, open_since=since, open_until=until))
    loop._set_aside[TOPIC].floor = NOW - timedelta(minutes=1)
    loop._publish_set_aside(Tick(), NOW)
    kept = loop._set_aside[TOPIC]
    assert (kept.floor, kept.until) == (since, until), "the loop's own floor has moved over it long ago"


def test_all_whose_pause_is_over_are_tried_in_one_step_and_each_by_its_own_window() -> None:
    publisher = Publisher(missing=("a", "c"), delivered=1)
    days_ago = NOW - timedelta(days=9)
    loop = loop_with(publisher, a=aside(), b=aside(), c=aside(floor=days_ago), d=aside(NOW + SECOND))
    loop._publish_set_aside(Tick(), NOW)
    minute = timedelta(minutes=1)
    (what,) = publisher.asked
    assert what.only == (Window("a", FLOOR, FLOOR + minute), Window("b", FLOOR, FLOOR + minute), Window("c", days_ago, days_ago + minute))
    # what lies between is not read
    assert what.times == [(days_ago, days_ago + minute), (FLOOR, FLOOR + minute)]
    assert {topic: (one.floor, one.until - NOW) for topic, one in loop._set_aside.items()} == {
        "a": (FLOOR, 2 * SECOND),
        "b": (FLOOR + minute, timedelta()),
        "c": (days_ago, 2 * SECOND),
        "d": (FLOOR, SECOND),
    }


def test_sixty_missing_destinations_take_one_step_a_minute() -> None:
    minute = timedelta(minutes=1)
    topics = {f"pod-{number}": aside(NOW + number * SECOND, minute) for number in range(60)}
    publisher = Publisher(missing=tuple(topics))
    loop = loop_with(publisher, **topics)
    # one whole round until their pauses end together, then ten more
    for second in range(60 * 11):
        loop._publish_set_aside(Tick(), NOW + second * SECOND)
        if second == 59:
            publisher.asked.clear()
    assert len(publisher.asked) <= 20
    assert {len(what.only) for what in publisher.asked[-2:]} == {60} or sum(len(what.only) for what in publisher.asked[-2:]) == 60
    assert set(loop._set_aside) == set(topics)


def test_a_step_tries_a_bounded_number_and_the_next_one_the_rest() -> None:
    topics = {f"t{number:04}": aside() for number in range(_TRIED_AT_ONCE + 1)}
    publisher = Publisher(missing=tuple(topics))
    loop = loop_with(publisher, **topics)
    for _ in range(2):
        loop._publish_set_aside(Tick(), NOW)
    assert [len(what.only) for what in publisher.asked] == [_TRIED_AT_ONCE, 1]
    assert {one.until for one in loop._set_aside.values()} == {NOW + 2 * SECOND}


def test_a_step_that_was_cut_goes_on_from_where_it_was_cut() -> None:
    cut = FLOOR + 30 * SECOND
    later = FLOOR + timedelta(minutes=10)
    loop = loop_with(Publisher(upto=cut, delivered=1), a=aside(), b=aside(floor=later))
    tick = Tick()
    loop._publish_set_aside(tick, NOW)
    assert {topic: (one.floor, one.until, one.reach) for topic, one in loop._set_aside.items()} == {
        "a": (cut, NOW, timedelta(minutes=2)),
        "b": (later, NOW, timedelta(minutes=1)),
    }
    assert tick.rest


def test_one_for_which_nothing_waits_is_forgotten_without_a_send() -> None:
    publisher = Publisher(rows=0)
    loop = loop_with(publisher, gone=aside(floor=NOW - timedelta(days=30)))
    for _ in range(20):
        loop._publish_set_aside(Tick(), NOW)
    assert (loop._set_aside, publisher.asked) == ({}, [])


def test_what_stops_kafka_as_a_whole_fails_all_of_them() -> None:
    loop = loop_with(Publisher(stops=(Stop(None, "no brokers"),)), a=aside(), b=aside())
    loop._publish_set_aside(Tick(), NOW)
    assert {(one.floor, one.why, one.until) for one in loop._set_aside.values()} == {(FLOOR, "gone", NOW + 2 * SECOND)}
