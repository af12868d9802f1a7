"""Loop time never runs backwards, whatever the wall clock does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from orchestration.clock import LoopClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clocks:
    def __init__(self) -> None:
        self.wall = NOON
        self.monotonic = 0.0

    def loop_clock(self, last: datetime | None = None) -> LoopClock:
        return LoopClock(last, wall=lambda: self.wall, monotonic=lambda: self.monotonic)


def test_a_wall_clock_that_is_set_back_is_not_followed_and_time_goes_on() -> None:
    clocks = Clocks()
    clock = clocks.loop_clock()
    clocks.wall -= timedelta(hours=1)
    clocks.monotonic += 5
    assert clock.now() == NOON + timedelta(seconds=5)


def test_a_wall_clock_that_jumps_ahead_is_followed() -> None:
    clocks = Clocks()
    clock = clocks.loop_clock()
    clocks.wall += timedelta(hours=1)
    assert clock.now() == NOON + timedelta(hours=1)


def test_a_start_goes_on_from_the_last_loop_time() -> None:
    clocks = Clocks()
    assert clocks.loop_clock(NOON + timedelta(minutes=5)).now() == NOON + timedelta(minutes=5)


def test_times_are_whole_milliseconds() -> None:
    clocks = Clocks()
    clocks.wall = NOON + timedelta(microseconds=1999)
    assert clocks.loop_clock().now().microsecond in (1000,)
