"""The timed lane: what it sends when, and what becomes of what it has, without Spark or Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from orchestration.loop.lane import HANDED
from orchestration.tables.ledgers import AppendError
from publisher import FAILED, RESULTS, UNKNOWN
from tests.unit.loop_kit.lane_world import NOW, SECOND, World, rows


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.answers.set()
    made.appends.set()
    made.refusals = 0
    made.lane.end()


def test_each_row_is_sent_at_its_time_the_earliest_first(world: World) -> None:
    world.lane.hand_over(rows("later", due=NOW + 5 * SECOND))
    world.lane.hand_over(rows("soon", due=NOW))
    world.lane.hand_over(rows("sooner", due=NOW - SECOND))
    world.at(-1.001)
    time.sleep(0.05)
    assert world.sent == []
    world.at(-1)
    world.until(lambda: world.sent == [["sooner"]])
    world.at(1)
    world.until(lambda: world.sent == [["sooner"], ["soon"]])
    assert world.lane.waiting() == (1, NOW + 5 * SECOND)
    world.at(5)
    world.until(lambda: len(world.sent) == 3)


def test_what_is_due_at_once_is_sent_at_once_by_due_time(world: World) -> None:
    world.at(10)
    for number in (3, 1, 2):
        world.lane._waiting.add(rows(f"r{number}", due=NOW + number * SECOND), NOW)
    world.lane.hand_over(rows("r0", due=NOW))
    world.until(lambda: world.sent == [["r0", "r1", "r2", "r3"]])


def test_what_is_paced_is_not_sent_at_once_after_a_long_send(world: World) -> None:
    world.answers.clear()
    for number, name in enumerate(("first", "second", "third", "fourth")):
        world.lane.hand_over(rows(name, due=NOW + number * SECOND, paced=True))
    world.at(0)
    assert world.asked.wait(30)
    world.at(10)
    world.answers.set()
    world.until(lambda: world.sent == [["first"]])
    world.until(lambda: world.lane.waiting() == (3, NOW + 10.75 * SECOND))
    world.at(10.75)
    world.until(lambda: world.sent == [["first"], ["second"]])
    assert world.lane.waiting() == (2, NOW + 11.75 * SECOND)


def test_a_time_between_two_milliseconds_is_not_rounded_down(world: World) -> None:
    world.lane.hand_over(rows("between", due=NOW + timedelta(microseconds=400)))
    world.at(0)
    time.sleep(0.05)
    assert world.sent == []
    world.at(0.001)
    world.until(lambda: world.sent == [["between"]])


def test_it_has_a_row_until_its_result_is_recorded(world: World) -> None:
    world.appends.clear()
    world.lane.hand_over(rows("a"))
    assert (world.lane.ids(), world.lane.oldest()) == ({"a"}, NOW)
    world.at(0)
    world.until(lambda: world.sent)
    time.sleep(0.4)
    assert (world.lane.ids(), world.lane.oldest(), world.lane.take_done().delivered) == ({"a"}, NOW, 0)
    world.appends.set()
    world.until(lambda: not world.lane.ids())
    assert (world.lane.oldest(), world.recorded) == (None, ["a"])


def test_what_was_done_is_told_once(world: World) -> None:
    world.outcomes = {"c": FAILED, "d": UNKNOWN}
    world.at(2)
    world.lane.hand_over(rows("a", "b", "c", "d"))
    world.until(lambda: len(world.recorded) == 4)
    world.lane.finish_send()
    assert world.lane.oldest() == NOW
    # until the loop has taken note of what is unknown, an end is not an orderly one
    assert (world.lane.has_unrecorded, world.lane.unrecorded_since()) == (False, NOW + 2 * SECOND)
    done = world.lane.take_done()
    assert world.lane.unrecorded_since() is None
    assert (done.delivered, done.failed, done.unknown, done.lateness) == (2, 1, 1, (2_000, 2_000))
    assert (done.open_since, done.open_until) == (NOW, NOW + 62 * SECOND)
    assert world.lane.oldest() is None
    assert world.lane.take_done().delivered == 0


@pytest.mark.parametrize(
    ("which", "left"),
    [({"ids": ["a"]}, {"b", "c"}), ({"topics": ["other"]}, {"a", "c"}), ({"breakers": ["key"]}, {"a", "b"}), ({}, {"a", "b", "c"})],
)
def test_what_is_withdrawn_is_not_sent(world: World, which: dict[str, list[str]], left: set[str]) -> None:
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", topic="other"))
    world.lane.hand_over(rows("c", breaker="key"))
    assert world.lane.withdraw(**which) == 3 - len(left)
    assert world.lane.ids() == left
    world.at(1)
    world.until(lambda: len(world.all_sent) == len(left))
    assert {*world.all_sent} == left


def test_what_is_being_sent_is_waited_for_and_recorded(world: World) -> None:
    world.answers.clear()
    world.lane.hand_over(rows("a", "b"))
    world.at(0)
    assert world.asked.wait(30)
    threading.Timer(0.2, world.answers.set).start()
    assert world.lane.withdraw(ids=["b"]) == 0
    # both were in one transaction
    assert world.recorded == ["a", "b"]


def test_what_others_wait_for_does_not_keep_a_withdrawal_waiting(world: World) -> None:
    world.answers.clear()
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", due=NOW + SECOND))
    world.at(0)
    assert world.asked.wait(30)
    assert world.lane.withdraw(ids=["b"]) == 1
    assert world.recorded == []


def test_a_destination_that_takes_nothing_gets_nothing_more_and_the_others_do(world: World) -> None:
    world.stops = {"gone": 3}
    world.lane.hand_over(rows("a", topic="gone", due=NOW - SECOND))
    world.lane.hand_over(rows("b", topic="gone", due=NOW + 5 * SECOND))
    world.lane.hand_over(rows("c", due=NOW + SECOND))
    world.at(0)
    world.until(lambda: world.lane.ids() == {"c"})
    # no floor may pass what was not sent, until the loop knows of it
    assert world.lane.oldest() == NOW - SECOND
    (stop,) = world.lane.take_done().stops
    assert (stop.topic, stop.code, stop.since) == ("gone", 3, NOW - SECOND)
    world.at(10)
    world.until(lambda: world.all_sent == ["c"])


def test_kafka_that_takes_nothing_is_left_alone_until_the_loop_knows(world: World) -> None:
    world.stops = {None: -195}
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", due=NOW + SECOND))
    world.at(0)
    world.until(lambda: not world.lane.ids())
    assert (world.lane.room(), world.lane.oldest()) == ((0, 0), NOW)
    (stop,) = world.lane.take_done().stops
    assert (stop.topic, stop.since, world.lane.room()) == (None, NOW, (1_000, 1_000_000))


def test_results_that_cannot_be_recorded_stop_the_lane_and_are_kept(world: World) -> None:
    world.refusals = 2
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", due=NOW + SECOND))
    world.at(0)
    world.until(lambda: world.lane.room() == (0, 0))
    world.at(5)
    for _ in range(2):
        # the loop reads where the ledgers end between two tries
        with pytest.raises(AppendError):
            world.lane.take_done()
    assert (world.all_sent, world.lane.ids()) == (["a"], {"a", "b"})
    world.lane.take_done()
    assert (world.recorded[:1], world.tried[:3]) == (["a"], [1, 2, 3])
    world.until(lambda: world.all_sent == ["a", "b"])


def an_attempt_has_failed(world: World) -> None:
    """A result could not be recorded, while another row is being sent."""
    world.refusals = 1
    world.answers.clear()
    world.lane.hand_over(rows("a"))
    world.at(0)
    assert world.asked.wait(30)
    world.lane._unrecorded.append(pa.Table.from_pylist([{"delivery_id": "before", "due_at": NOW, "outcome": FAILED}], schema=RESULTS))
    world.lane._record()


def another_send_is_unrecorded_after_a_failed_attempt(world: World) -> None:
    """The loop has been told of the failure, and results can be recorded again."""
    an_attempt_has_failed(world)
    with pytest.raises(AppendError):
        world.lane.take_done()
    world.answers.set()
    world.until(lambda: len(world.lane._unrecorded) == 2)


def test_only_what_was_tried_is_tried_again(world: World) -> None:
    """An attempt may have succeeded although its answer was lost: with more rows in it, the new ones would be taken for recorded."""
    another_send_is_unrecorded_after_a_failed_attempt(world)
    world.lane.take_done()
    assert world.recorded[0] == "before"
    world.until(lambda: world.recorded == ["before", "a"])


def test_what_came_while_an_attempt_failed_is_recorded_too_before_reports_are(world: World) -> None:
    another_send_is_unrecorded_after_a_failed_attempt(world)
    world.lane.finish_send()
    assert (world.recorded, world.lane.has_unrecorded) == (["before", "a"], False)


def test_an_error_in_the_lane_stops_it_until_the_loop_knows_and_does_not_end_it(world: World) -> None:
    def fail(_: object) -> list[pa.RecordBatch]:
        raise ZeroDivisionError

    sends = world.lane.send
    # neither what a send raises nor results that can't be read may end the thread, or let a floor pass the rows
    for send, error in (
        (fail, "ZeroDivisionError"),
        (lambda _: [pa.RecordBatch.from_pylist([{"a": 1}])], "KeyError"),
        (lambda _: [], "NO_RESULT"),
    ):
        world.lane.send = send
        world.at(-1)
        world.lane.hand_over(rows("a"))
        world.lane.hand_over(rows("b", due=NOW + 50 * SECOND))
        world.at(0)
        world.until(lambda: not world.lane.ids())
        assert (world.lane.oldest(), world.lane.room()) == (NOW, (0, 0))
        world.lane.finish_send()
        (stop,) = world.lane.take_done().stops
        assert (stop.topic, stop.error, stop.since) == (None, error, NOW)
    world.lane.send = sends
    world.lane.hand_over(rows("a"))
    world.until(lambda: world.all_sent == ["a"])


def test_a_withdrawal_waits_for_one_send_though_others_follow_at_once(world: World) -> None:
    world.at(1_000)
    withdrawn, sends = threading.Event(), list[str]()
    send = world.lane.send

    def slow(batch: pa.RecordBatch) -> Any:
        if withdrawn.is_set():
            sends.append(batch.column("delivery_id")[0].as_py())
        time.sleep(0.02)
        # there is always something due
        world.lane.hand_over(rows(f"{batch.column('delivery_id')[0]}x"))
        return send(batch)

    world.lane.send = slow
    world.lane.hand_over(rows("a"))
    world.until(lambda: world.sent)
    with world.lane._changed:
        world.lane._changed.wait_for(lambda: world.lane._sending is not None)
        assert world.lane._sending is not None
        (current,) = world.lane._sending.column("delivery_id").to_pylist()
        withdrawn.set()
    world.lane.withdraw(ids=[current])
    assert current in world.recorded
    assert len(sends) <= 2
    world.lane.send = send


def test_nothing_more_is_sent_while_results_wait_long_to_be_recorded(world: World) -> None:
    world.lane.longest_unrecorded = 0.1
    world.appends.clear()
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", due=NOW + SECOND))
    world.at(0)
    world.until(lambda: world.sent)
    time.sleep(0.2)
    world.at(5)
    time.sleep(0.1)
    assert world.all_sent == ["a"]
    world.appends.set()
    world.until(lambda: world.all_sent == ["a", "b"])


def test_an_end_records_everything_after_an_attempt_that_failed_and_tries_also_if_nobody_was_told(world: World) -> None:
    an_attempt_has_failed(world)
    world.answers.set()
    world.until(lambda: len(world.lane._unrecorded) == 2)
    world.lane.end()
    assert (world.recorded, world.lane.has_unrecorded) == (["before", "a"], False)


def test_what_is_left_keeps_no_memory_of_what_was_sent(world: World) -> None:
    before = pa.total_allocated_bytes()
    for number in range(20):
        some = rows(*(f"{number}-{row}" for row in range(40)), due=NOW).to_pylist()
        some[0]["due_at"] = NOW + 500 * SECOND
        world.lane.hand_over(pa.Table.from_pylist([{**row, "value": bytes(20_000)} for row in some], schema=HANDED))
        world.at(number)
        world.until(partial(lambda left: world.lane.waiting()[0] == left and not world.lane.has_unrecorded, number + 1))
    assert pa.total_allocated_bytes() - before < 20 * 20_000 * 4


def test_an_end_records_what_was_sent_and_leaves_the_rest(world: World) -> None:
    world.answers.clear()
    world.lane.hand_over(rows("a"))
    world.lane.hand_over(rows("b", due=NOW + 5 * SECOND))
    world.at(0)
    assert world.asked.wait(30)
    threading.Timer(0.1, world.answers.set).start()
    world.lane.end()
    world.at(10)
    assert (world.all_sent, world.recorded, world.lane.ids()) == (["a"], ["a"], set())
    assert not any(thread.is_alive() for thread in world.lane._threads)


def test_there_is_room_for_so_many_rows_and_bytes(world: World) -> None:
    world.lane.hand_over(rows(*(f"r{number}" for number in range(300))))
    left, size = world.lane.room()
    assert left == 700
    assert 0 < size < 1_000_000
    world.lane.withdraw_all()
    assert world.lane.room() == (1_000, 1_000_000)
