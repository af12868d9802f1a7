"""While inputs are undecided a step leaves out what they name, and no floor moves over what was left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from orchestration.loop.loop import Loop, SetAside, Tick
from orchestration.loop.publish import Due, Published, Waiting
from orchestration.settings import load_settings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOOR = NOW - timedelta(seconds=40)
RECORDED = NOW - timedelta(seconds=10)
TOPIC = "orders-billing-retry"


class Publisher:
    """Finds rows that are due, and sends all it may."""

    def __init__(self) -> None:
        self.asked: list[Due] = []

    def waiting(self, *_: object, **__: object) -> Waiting:
        return Waiting(rows=1, size=1, largest=1, next_due=None, batches=(1,))

    def run(self, what: Due, *_: object) -> Published:
        self.asked.append(what)
        return Published(upto=what.upto, complete=True, delivered=1)


class Clock:
    def now(self) -> datetime:
        return NOW


@pytest.fixture
def loop() -> Loop:
    """A loop that has decided everything up to batch 7."""
    loop = Loop(load_settings())
    loop.clock = cast(Any, Clock())
    loop.publisher = cast(Any, Publisher())
    loop.floor, loop.watermark = FLOOR, 7
    return loop


def asked(loop: Loop) -> list[Due]:
    return cast(Publisher, loop.publisher).asked


@pytest.mark.parametrize(("undecided", "after", "floor"), [(0, None, NOW), (3, 7, FLOOR)], ids=["all is decided", "something is not"])
def test_the_floor_stays_where_something_was_left_out(loop: Loop, undecided: int, after: int | None, floor: datetime) -> None:
    if undecided:
        loop._await_decision(undecided, RECORDED)
    loop._publish_due(Tick(), NOW)
    assert [what.undecided_after for what in asked(loop)] == [after]
    assert loop.floor == floor


def test_what_was_left_out_of_a_destination_that_was_set_aside_is_looked_for_again(loop: Loop) -> None:
    earlier = FLOOR - timedelta(minutes=3)
    loop._set_aside = {TOPIC: SetAside("gone", NOW, floor=earlier)}
    loop._await_decision(1, RECORDED)
    for _ in range(3):
        loop._publish_set_aside(Tick(), NOW)
    # from its own floor each time, a longer way
    assert [(what.floor, what.undecided_after) for what in asked(loop)] == [(earlier, 7)] * 3
    left = loop._set_aside[TOPIC]
    assert (left.floor, left.until > NOW) == (earlier, True)
    loop._undecided, loop._undecided_since = 0, None
    loop._publish_set_aside(Tick(), left.until)
    assert (asked(loop)[-1].floor, asked(loop)[-1].undecided_after) == (earlier, None)
    assert not loop._set_aside
