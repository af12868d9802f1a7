"""What a kind of error does to a message, on the real broker: how long it waits, and what it is charged."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import pytest
from confluent_kafka import KafkaException, Producer

from tests.loop.harness import Record, Redrive

pytestmark = pytest.mark.slow


def _attempts(records: list[Record]) -> list[str | None]:
    return [record.header("redrive-attempt") for record in records]


def test_backpressure_charges_nothing_and_a_quota_waits_five_times_as_long_also_over_a_restart(redrive: Redrive) -> None:
    redrive.domain("room")
    redrive.domain("quota")
    redrive.fails("room.orders", b"k", b"v", error="acme.BackpressureError")
    (first,) = redrive.retries("room", 1)
    redrive.report(first, error="acme.BackpressureError")
    over_quota = redrive.fails("quota.orders", b"k", b"v", error="acme.QuotaExceededError")
    redrive.decided("quota", 1)
    redrive.restart()
    redrive.report(redrive.retries("room", 2)[-1])
    retries = redrive.retries("room", 3)
    # it was turned away twice, and failed once
    assert _attempts(retries) == ["1", "1", "2"]
    rows = redrive.sql("select * from attempts where original_topic = 'room.orders' order by due_at")
    assert [(row["reason"], row["attempt"]) for row in rows] == [("backpressure", 0), ("backpressure", 0), ("retriable", 1)]
    assert all((row["due_at"] - row["failed_at"]).total_seconds() >= 1 for row in rows)
    (retry,) = redrive.retries("quota", 1)
    assert retry.timestamp - over_quota.timestamp >= 5_000
    assert _attempts([retry]) == ["2"]
    (row,) = redrive.sql("select * from attempts where original_topic = 'quota.orders'")
    assert (row["reason"], row["delay_ms"]) == ("quota", 5_000)
    redrive.settle()


def test_a_wrapped_error_is_what_its_cause_is_and_a_blocking_one_has_a_route_of_its_own(redrive: Redrive) -> None:
    redrive.domain("chain")
    stack = "java.util.concurrent.ExecutionException: x\n\tat a.B(B.java:1)\nCaused by: java.lang.NullPointerException: y\n\tat c\n"
    said = [("redrive-error-stack", stack.encode())]
    redrive.fails("chain.orders", b"k", b"v", said, error="java.util.concurrent.ExecutionException")
    (dead,) = redrive.dead("chain", 1)
    assert dead.header("dlq-error-class") == "java.util.concurrent.ExecutionException"
    (row,) = redrive.sql("select * from attempts where original_topic = 'chain.orders'")
    assert (row["error_kind"], row["matched"]) == ("fatal", "java.lang.NullPointerException")
    redrive.fails("chain.orders", b"k", b"v2", error="acme.BlockingError")
    redrive.retries("chain", 1)
    (row,) = redrive.sql("select * from attempts where original_topic = 'chain.orders' and error_kind = 'blocking'")
    assert (row["policy"], row["max_attempts"], row["reason"]) == ("publish", None, "blocking")
    redrive.settle()


def test_a_start_loads_rules_only_if_they_are_others(redrive: Redrive) -> None:
    def commits() -> int:
        return len(redrive.sql(f"select * from {redrive.loop.schema}.error_rules.snapshots"))

    redrive.restart()
    before = commits()
    redrive.restart()
    assert commits() == before
    path = redrive.loop.settings.seeds / "error_rules.csv"
    rules = path.read_bytes()
    try:
        path.write_bytes(rules + b"acme.New,,,,fatal,*,*,*,\n")
        redrive.loop.tick()
        assert commits() > before
        redrive.domain("loaded")
        redrive.fails("loaded.orders", b"k", b"v", error="acme.New")
        redrive.dead("loaded", 1)
    finally:
        path.write_bytes(rules)
        redrive.loop.tick()
    redrive.settle()


def test_a_fence_while_the_loop_is_in_charge_charges_nothing_and_loses_nothing(redrive: Redrive) -> None:
    redrive.domain("fence")
    settings = redrive.loop.settings
    ids = [f"{settings.transactional_prefix}.{settings.instance}.{slot}" for slot in range(settings.slots)]
    over, begun = threading.Event(), list[str]()

    def fence() -> None:
        # somebody who has no business with these ids begins under them again and again
        while not over.is_set():
            for name in ids:
                with contextlib.suppress(KafkaException):
                    Producer({**redrive.kafka, "transactional.id": name}).init_transactions(10)
                    begun.append(name)

    intruder = threading.Thread(target=fence)
    intruder.start()
    try:
        for number in range(20):
            redrive.fails("fence.orders", b"%d" % number, b"v")
        redrive.decided("fence", 20)
        redrive.loop.stopping.wait(1)
        for _ in range(3):
            redrive.loop.tick()
        assert len(begun) > 2 * len(ids), "the slots were not fenced again and again"
    finally:
        over.set()
        intruder.join()
    redrive.retries("fence", 20)
    redrive.settle()
    retries = redrive.read("fence.orders-billing-retry")
    assert {int(record.key or b"") for record in retries} == set(range(20))
    rows = redrive.sql("select * from publish_results where original_topic = 'fence.orders'")
    outcomes = Counter(row["outcome"] for row in rows)
    # a fence at the commit may have come too late: then, and only then, a message is sent once more
    assert outcomes.keys() <= {"delivered", "unknown", "absent"}
    assert outcomes["delivered"] == 20
    assert len(retries) <= 20 + outcomes["unknown"]
    redrive.settle()
