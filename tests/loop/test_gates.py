"""Gates on the real broker: a blocking error holds up its scope, one probe after another finds out when it works again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.loop.harness import Record, Redrive

GATES = "redrive.gates"
BLOCKING = "acme.BlockingError"


@pytest.fixture
def quick(redrive: Redrive) -> Iterator[Redrive]:
    """A loop that takes a message for processed when no report came within two seconds, and tells its gates."""
    settings = redrive.loop.settings
    if GATES not in redrive.loop.cluster.topic_names():
        redrive.topics(GATES, config={"cleanup.policy": "compact"})
    redrive.restart(settle_seconds=2, gates_topic=GATES)
    yield redrive
    redrive.restart(settle_seconds=settings.settle_seconds, gates_topic="")


def _gate(redrive: Redrive, scope: str) -> Any:
    rows = redrive.sql(f"select * from gates where scope = '{scope}' order by since desc limit 1")
    return rows[0] if rows else None


def _told(redrive: Redrive, scope: str) -> list[str]:
    return [json.loads(record.value or b"")["state"] for record in redrive.read(GATES) if record.key == scope.encode()]


def _commit(redrive: Redrive, topic: str, offset: int) -> None:
    """The group says that it has processed what lies before an offset."""
    consumer = Consumer({**redrive.kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.long
def test_a_gate_closes_probes_and_opens_over_a_restart_with_nothing_lost_or_charged(quick: Redrive) -> None:
    quick.domain("gate")
    quick.domain("free")
    # a group that commits offsets: only they say that a probe has succeeded
    _commit(quick, "gate.orders-billing-retry", 0)
    failed = [quick.fails("gate.orders", b"k", b"%d" % number, error=BLOCKING) for number in range(5)]
    # the oldest alone comes back; the others are held
    (probe,) = quick.retries("gate", 1)
    quick.until(lambda: (gate := _gate(quick, "billing:gate.orders")) and gate["held"] == 4, "four messages held")
    assert probe.value == failed[0].value
    assert _gate(quick, "billing:gate.orders")["state"] == "closed"
    # the other scope is as free as before
    quick.fails("free.orders", b"k", b"free")
    quick.retries("free", 1)
    # the probe fails, and is alone again: at its own pace
    quick.report(probe, error=BLOCKING)
    second = quick.retries("gate", 2)[-1]
    assert (second.value, second.header("redrive-attempt")) == (probe.value, "3")
    quick.restart()
    quick.report(second, error=BLOCKING)
    quick.fails("gate.orders", b"k", b"5", error="TimeoutError")
    third = quick.retries("gate", 3)[-1]
    assert third.value == probe.value
    quick.until(lambda: _gate(quick, "billing:gate.orders")["held"] == 5, "five messages held")
    assert _gate(quick, "billing:gate.orders")["probes"] == 3
    # the third is processed: the gate opens, and what was held follows, each once, the oldest first
    _commit(quick, "gate.orders-billing-retry", third.offset + 1)
    quick.retries("gate", 8)
    quick.settle()
    records = quick.read("gate.orders-billing-retry")
    assert [record.value for record in records[3:]] == [b"1", b"2", b"3", b"4", b"5"]
    assert {record.header("redrive-attempt") for record in records[3:]} == {"2"}
    rows = quick.sql("select * from attempts where original_topic = 'gate.orders'")
    assert sorted((row["original_offset"], row["attempt"]) for row in rows) == [(0, 1), (0, 2), (0, 3), *((n, 1) for n in range(1, 6))]
    quick.until(lambda: _gate(quick, "billing:gate.orders")["state"] == "open", "an open gate")
    assert _gate(quick, "billing:gate.orders")["held"] == 0
    assert _told(quick, "billing:gate.orders")[0] == "closed"
    assert _told(quick, "billing:gate.orders")[-1] == "open"
    # sends of retries of what a gate released are no attempts, and everything that was failed is on record as sent
    states = {row["state"] for row in quick.sql("select state from messages where original_topic = 'gate.orders'")}
    assert states <= {"sent", "recovered"}
    quick.settle()


@pytest.mark.slow
def test_a_probe_that_dies_is_followed_by_the_next_and_what_the_group_has_processed_has_recovered(quick: Redrive) -> None:
    quick.domain("died")
    topic = "died.orders-billing-retry"
    _commit(quick, topic, 0)
    quick.fails("died.orders", b"k", b"0", error=BLOCKING)
    quick.fails("died.orders", b"k", b"1", error=BLOCKING)
    (first,) = quick.retries("died", 1)
    quick.until(lambda: (gate := _gate(quick, "billing:died.orders")) and gate["held"] == 1, "a message held")
    # it turns out to be a bug: the message dies, and the other one is tried
    quick.report(first, error="KeyError")
    second: Record = quick.retries("died", 2)[-1]
    assert (second.value, second.header("redrive-attempt")) == (b"1", "2")
    quick.dead("died", 1)
    # its silence says nothing: it may not have got that far
    _commit(quick, topic, second.offset)
    quick.settle()
    for _ in range(8):
        quick.loop.stopping.wait(0.5)
        quick.loop.tick()
    assert _gate(quick, "billing:died.orders")["state"] == "closed"
    _commit(quick, topic, second.offset + 1)
    quick.until(lambda: _gate(quick, "billing:died.orders")["state"] == "open", "an open gate")
    quick.settle()
    states = {row["original_offset"]: row["state"] for row in quick.sql("select * from messages where original_topic = 'died.orders'")}
    assert states == {0: "dead", 1: "recovered"}


@pytest.mark.slow
def test_where_order_matters_a_partition_has_a_gate_of_its_own(quick: Redrive) -> None:
    quick.domain("parts", partitions=2)
    _commit(quick, "parts.orders-billing-retry", 0)
    path = quick.loop.settings.seeds / "routes.csv"
    routes = path.read_text(encoding="utf-8")
    header, *rows = routes.splitlines()
    try:
        path.write_text("\n".join([f"{header},gate", *(f"{row},partition" for row in rows)]) + "\n", encoding="utf-8")
        for partition in (0, 1):
            _, offset = quick.write("parts.orders", b"k", b"%d" % partition, partition=partition)
            record = Record("parts.orders", partition, offset, 0, b"k", b"%d" % partition, ())
            quick.report(record, error=BLOCKING if partition == 0 else "TimeoutError")
            quick.report(Record("parts.orders", partition, offset + 1, 0, b"k", b"later", ()), error="TimeoutError")
        quick.until(lambda: (gate := _gate(quick, "billing:parts.orders/0")) and gate["held"] == 1, "a message held")
        records = quick.retries("parts", 3)
        assert sorted((record.partition, record.value) for record in records) == [(0, b"0"), (1, b"1"), (1, b"later")]
        assert _gate(quick, "billing:parts.orders/1") is None
        _commit(quick, "parts.orders-billing-retry", 1)
        quick.retries("parts", 4)
    finally:
        path.write_text(routes, encoding="utf-8")
        quick.loop.tick()
    quick.settle()


@pytest.mark.slow
def test_a_gate_of_a_group_that_commits_nothing_opens_when_no_report_comes(quick: Redrive) -> None:
    quick.domain("silent")
    quick.fails("silent.orders", b"k", b"0", error=BLOCKING)
    quick.retries("silent", 1)
    quick.until(lambda: (gate := _gate(quick, "billing:silent.orders")) and gate["state"] == "open", "an open gate")
    (row,) = quick.sql("select * from messages where original_topic = 'silent.orders'")
    assert row["state"] == "sent"
    quick.settle()
