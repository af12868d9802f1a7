"""Loop time never runs backwards, whatever the wall clock does; and times are the same in every time zone."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta

import pytest

from orchestration.clock import LoopClock, date_of, literal, moment_of
from orchestration.loop import sending
from tests.zones import local_zone

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


@pytest.mark.parametrize("last", [NOON, NOON + timedelta(hours=5)])
@pytest.mark.parametrize("reading", range(3, 7))
def test_a_process_that_is_stopped_between_two_readings_is_no_further_ahead(last: datetime, reading: int) -> None:
    """Else it is ahead for as long as the loop runs, a little more each time that the machine is busy, and what is due is sent early."""
    passed, readings = timedelta(), 0

    def wall() -> datetime:
        nonlocal passed, readings
        readings += 1
        passed += timedelta(hours=1) if readings == reading else timedelta(milliseconds=1)
        return NOON + passed

    clock = LoopClock(last, wall=wall, monotonic=lambda: (wall() - NOON).total_seconds())
    ahead = last - NOON
    found = clock.ahead
    for _ in range(2):
        assert clock.now() - (NOON + passed) <= ahead
    assert found >= clock.now() - (NOON + passed), "what was sent is looked for by the wall clock"


def test_a_result_has_no_time_before_its_due_time_after_a_stop_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_ms = itertools.count(0, 1_000)
    monkeypatch.setattr(sending, "epoch_ms", lambda: next(passed_ms))
    assert sending.ahead_in_ms(lambda: moment_of(next(passed_ms) * 1_000)) >= 0


def test_a_start_goes_on_from_the_last_loop_time() -> None:
    clocks = Clocks()
    assert clocks.loop_clock(NOON + timedelta(minutes=5)).now() == NOON + timedelta(minutes=5)


def test_times_are_whole_milliseconds() -> None:
    clocks = Clocks()
    clocks.wall = NOON + timedelta(microseconds=1999)
    assert clocks.loop_clock().now().microsecond in (1000,)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    ("micros", "moment"),
    [
        # twice ten past one in New York
        (1_793_509_800_000_005, datetime(2026, 11, 1, 5, 10, 0, 5, tzinfo=UTC)),
        (1_793_513_400_000_005, datetime(2026, 11, 1, 6, 10, 0, 5, tzinfo=UTC)),
        # twice twenty-five to two on Lord Howe, where the clocks go back by half an hour
        (1_775_313_300_000_000, datetime(2026, 4, 4, 14, 35, tzinfo=UTC)),
        (1_775_315_100_000_000, datetime(2026, 4, 4, 15, 5, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-62_135_596_800_000_000, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_a_number_and_a_moment_are_the_same_in_every_zone(zone: str, micros: int, moment: datetime) -> None:
    with local_zone(zone):
        assert moment_of(micros) == moment
        assert literal(moment) == f"timestamp_micros({micros})"


def test_what_python_cannot_hold_is_the_nearest_that_it_can() -> None:
    assert moment_of(-62_135_596_800_000_001) == moment_of(-(2**63)) == datetime(1, 1, 1, tzinfo=UTC)
    assert moment_of(253_402_300_800_000_000) == moment_of(2**63 - 1) == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert (date_of(0), date_of(2**31 - 1), date_of(-(2**31))) == (date(1970, 1, 1), date.max, date.min)


def test_a_time_without_a_zone_is_no_moment() -> None:
    with pytest.raises(TypeError):
        literal(datetime(2026, 1, 1))  # noqa: DTZ001
