"""A destination that was set aside catches up step by step, and its floor never moves over what is still open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration.loop import Loop, SetAside, Tick
from orchestration.publish import Due, Published, Stop, Waiting
from orchestration.settings import load_settings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOOR = NOW - timedelta(hours=1)
TOPIC = "orders-billing-retry"


class Publisher:
    """What a step would have said: there are rows, and this became of them."""

    def __init__(self, **became: Any) -> None:
        self.became = became
        self.asked: list[Due] = []

    def waiting(self, *_: object, **__: object) -> Waiting:
        return Waiting(rows=1, size=1, largest=1, next_due=None, batches=(1,))

    def run(self, what: Due, *_: object) -> Published:
        self.asked.append(what)
        return Published(upto=what.upto, complete=True, **self.became)


class Clock:
    def now(self) -> datetime:
        return NOW


def loop_with(publisher: Publisher) -> Loop:
    loop = Loop(load_settings())
    loop.clock = Clock()  # type: ignore[assignment]
    loop.publisher = publisher  # type: ignore[assignment]
    loop.floor = NOW
    loop._set_aside = {TOPIC: SetAside("gone", NOW, floor=FLOOR)}
    return loop


def test_each_success_reaches_twice_as_far_until_it_has_caught_up() -> None:
    publisher = Publisher(delivered=1)
    loop = loop_with(publisher)
    while loop._set_aside:
        loop._publish_set_aside(Tick(), TOPIC, NOW)
    minutes = [(what.upto - what.floor) / timedelta(minutes=1) for what in publisher.asked]
    assert minutes == [1, 2, 4, 8, 16, 29]
    assert all(what.only == TOPIC and what.now == NOW for what in publisher.asked)


def test_a_failure_keeps_the_floor_and_starts_small_again() -> None:
    loop = loop_with(Publisher(stops=(Stop(TOPIC, "still gone"),)))
    loop._set_aside[TOPIC].reach = timedelta(hours=1)
    loop._publish_set_aside(Tick(), TOPIC, NOW)
    aside = loop._set_aside[TOPIC]
    assert (aside.floor, aside.reach, aside.why) == (FLOOR, timedelta(minutes=1), "still gone")
    assert aside.until == NOW + timedelta(seconds=2)


@pytest.mark.parametrize("open_after", [0, 30])
def test_its_floor_stays_under_a_send_whose_outcome_is_unknown(open_after: int) -> None:
    since = FLOOR + timedelta(seconds=open_after)
    loop = loop_with(Publisher(unknown=1, open_since=since, open_until=NOW + timedelta(minutes=1)))
    loop._publish_set_aside(Tick(), TOPIC, NOW)
    assert loop._set_aside[TOPIC].floor == since
