"""Handing rows to a client that has no room, takes no more, or is too slow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.handover import CHUNK, Reports, collector_paused, hand_over
from tests.unit.publisher_kit.rows import ready

LATER = 3_600.0


class FakeProducer:
    """Takes messages until `trouble` says otherwise for one; a fake, since no broker fills a queue on command."""

    def __init__(self, trouble: Callable[[int], Exception | None] = lambda attempt: None) -> None:
        self.taken: list[Any] = []
        self.attempts = 0
        self._trouble = trouble

    def produce(self, *arguments: Any) -> None:
        error = self._trouble(self.attempts)
        self.attempts += 1
        if error is not None:
            raise error
        self.taken.append(arguments[2])

    def poll(self, timeout: float) -> int:
        return 0


def handed(producer: FakeProducer, rows: int, deadline: float) -> Any:
    batch = ready({"topic": f"t{n}"} for n in range(rows))
    reports = Reports(rows, {})
    hand_over(producer, batch, reports, deadline, clock=lambda: 42)  # type: ignore[arg-type]  # a producer that only counts
    return reports


def test_a_full_queue_is_waited_for_and_no_row_is_lost_or_doubled() -> None:
    full = {0, 1, 7, 1_400, CHUNK + 3, 2 * CHUNK}
    producer = FakeProducer(lambda attempt: BufferError("queue full") if attempt in full else None)

    result = handed(producer, 2 * CHUNK + 5, time.monotonic() + LATER)

    assert producer.taken == [f"k{n}".encode() for n in range(2 * CHUNK + 5)]
    assert (result.handed, result.sent_at, result.refusal) == (2 * CHUNK + 5, [42] * (2 * CHUNK + 5), None)


def test_a_queue_that_stays_full_ends_the_hand_over_at_the_deadline() -> None:
    producer = FakeProducer(lambda attempt: BufferError("queue full") if attempt >= 10 else None)

    result = handed(producer, 20, time.monotonic())

    assert (result.handed, len(producer.taken), result.refusal) == (10, 10, None)


def test_a_queue_without_room_for_a_single_row_refuses_it_rather_than_trying_for_ever() -> None:
    result = handed(FakeProducer(lambda attempt: BufferError("queue full")), 3, time.monotonic())

    assert result.handed == 0
    assert (result.refusal[0], result.refusal[1].code()) == ("t0", KafkaError._QUEUE_FULL)


@pytest.mark.parametrize("bad", [0, 3, CHUNK - 1, CHUNK, CHUNK + 1])
def test_a_refused_row_is_named_by_its_topic(bad: int) -> None:
    error = KafkaError(KafkaError._UNKNOWN_TOPIC)
    producer = FakeProducer(lambda attempt: KafkaException(error) if attempt == bad else None)

    result = handed(producer, CHUNK + 2, time.monotonic() + LATER)

    assert (result.handed, result.refusal) == (bad, (f"t{bad}", error))


def test_when_the_time_is_up_the_rest_is_left_for_the_next_transaction() -> None:
    producer = FakeProducer()

    result = handed(producer, 3 * CHUNK, time.monotonic())

    assert (result.handed, len(producer.taken)) == (CHUNK, CHUNK)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    def fail_inside() -> None:
        with collector_paused():
            assert not gc.isenabled()
            raise OSError("inside")

    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(OSError, match="inside"):
            fail_inside()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
