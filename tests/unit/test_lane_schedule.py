"""When the timed lane sends what waits: at its due time, or as long after the message before it as the due times say."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from orchestration.loop.lane_schedule import Schedule
from tests.unit.loop_kit.lane_world import NOW, SECOND, rows


def at(seconds: float) -> datetime:
    return NOW + seconds * SECOND


def paced(*deliveries: tuple[str, int]) -> pa.Table:
    """Rows whose intervals are kept, each with its due time in seconds after NOW."""
    return pa.concat_tables([rows(name, due=at(due), paced=True) for name, due in deliveries])


def take(schedule: Schedule, seconds: float, most: int = 100, takes: float = 0) -> list[str]:
    """What is sent then, and how long that takes."""
    taken = schedule.take(at(seconds), most)
    schedule.sent(at(seconds + takes))
    names: list[str] = taken.column("delivery_id").to_pylist()
    return names


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def test_what_is_paced_and_in_time_is_sent_at_its_time(schedule: Schedule) -> None:
    schedule.add(paced(("second", 1), ("first", 0)), at(-1))
    assert schedule.next == at(0)
    # a quarter of a second late is in time
    assert take(schedule, 0.25) == ["first"]
    assert schedule.next == at(1)


def test_what_is_paced_and_overdue_keeps_its_intervals_and_delays_nothing_else(schedule: Schedule) -> None:
    schedule.add(pa.concat_tables([paced(("first", 0), ("second", 2)), rows("other", due=at(1))]), at(60))
    assert take(schedule, 60) == ["first", "other"]
    schedule.add(rows("another", due=at(3)), at(60))
    assert take(schedule, 60) == ["another"]
    assert schedule.next == at(61.75)
    assert take(schedule, 61.75) == ["second"]
    assert schedule.rows == 0


def test_a_long_send_delays_what_follows_it(schedule: Schedule) -> None:
    schedule.add(paced(("first", 0), ("second", 1)), at(-1))
    assert take(schedule, 0, takes=10) == ["first"]
    assert schedule.next == at(10.75)


def test_a_long_send_of_others_delays_what_has_become_overdue(schedule: Schedule) -> None:
    schedule.add(pa.concat_tables([rows("other", due=at(0)), paced(("first", 1), ("second", 2))]), at(-1))
    assert take(schedule, 0, takes=10) == ["other"]
    assert take(schedule, 10) == ["first"]
    assert schedule.next == at(10.75)


def test_after_hours_without_a_loop_only_what_was_issued_before_is_late(schedule: Schedule) -> None:
    schedule.add(paced(("old", 0), ("older", -1)), at(7_200))
    schedule.add(paced(("new", 7_210), ("newer", 7_211)), at(7_200))
    assert take(schedule, 7_200) == ["older"]
    assert take(schedule, 7_200.75) == ["old"]
    assert schedule.next == at(7_210)
    assert take(schedule, 7_210) == ["new"]
    assert schedule.next == at(7_211)


def test_one_that_is_hours_late_does_not_delay_the_others(schedule: Schedule) -> None:
    schedule.add(paced(("first", 0), ("second", 1)), at(0))
    assert take(schedule, 0) == ["first"]
    schedule.add(paced(("straggler", -7_200)), at(0.5))
    assert take(schedule, 0.5) == ["straggler"]
    assert schedule.next == at(1)


def test_what_comes_too_late_follows_what_was_sent_and_what_comes_in_time_is_in_time(schedule: Schedule) -> None:
    schedule.add(paced(("first", 0)), at(60))
    assert take(schedule, 60) == ["first"]
    schedule.add(paced(("second", 2)), at(61))
    # it has come in time, but something that is late is before it
    schedule.add(paced(("third", 22)), at(61))
    assert take(schedule, 61.75) == ["second"]
    assert schedule.next == at(81.75)
    removed = schedule.remove(lambda rows: pc.equal(rows.column("delivery_id"), "third"))
    assert [name for some in removed for name in some.column("delivery_id").to_pylist()] == ["third"]
    schedule.add(paced(("fourth", 62)), at(61))
    assert schedule.next == at(62)


def test_what_is_too_much_at_once_is_left_and_keeps_its_pace(schedule: Schedule) -> None:
    schedule.add(pa.concat_tables([rows("a", "b", due=at(0)), paced(("c", 1), ("d", 2))]), at(0))
    assert take(schedule, 1, most=1) == ["a"]
    assert take(schedule, 1, most=2) == ["b", "c"]
    assert schedule.next == at(2)
