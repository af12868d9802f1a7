"""Circuit breakers on the real broker: a blocking error opens one, and one probe after another finds out when messages can be processed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from orchestration.loop.state import LoopState
from orchestration.tables import migration
from orchestration.tables.spark import iceberg_table
from tests.loop.harness import Record, Redrive

pytestmark = pytest.mark.slow

BREAKERS = "redrive.breakers"
GATES = "redrive.gates"
BLOCKING = "acme.BlockingError"


@pytest.fixture
def quick(redrive: Redrive) -> Iterator[Redrive]:
    """A loop whose `settle_seconds` is 2, and which writes the states of its circuit breakers, in today's words and in those of gates."""
    settings = redrive.loop.settings
    for topic in {BREAKERS, GATES}.difference(redrive.loop.cluster.topic_names()):
        redrive.topics(topic, config={"cleanup.policy": "compact"})
    redrive.restart(settle_seconds=2, circuit_breakers_topic=BREAKERS, gates_topic=GATES)
    yield redrive
    redrive.restart(settle_seconds=settings.settle_seconds, circuit_breakers_topic="", gates_topic="")


def _breaker(redrive: Redrive, key: str) -> Any:
    rows = redrive.sql(f"select * from circuit_breakers where breaker_key = '{key}' order by opened_at desc limit 1")
    return rows[0] if rows else None


def _holds(redrive: Redrive, key: str) -> bool:
    return _breaker(redrive, key)["state"] in ("open", "half_open")


def _states(redrive: Redrive, topic: str, key: str) -> list[str]:
    return [json.loads(record.value or b"")["state"] for record in redrive.read(topic) if record.key == key.encode()]


def _in_columns_of_before(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `ticks` as table versions 1 and 2 had it: all numbers in one map."""
    numbers = {
        **row["next_offsets"],
        **{f"source:{name}": 1 for name in row["started_sources"]},
        **{f"command:{command}": number for command, number in row["commands_issued"].items()},
        "commands": row["commands_since"],
        "awaited": row["awaited_batch"],
        **({} if row["feed_batch"] is None else {"announced": row["feed_batch"]}),
    }
    gone = dict.fromkeys(("started_sources", "commands_since", "commands_issued", "feed_batch", "awaited_batch"))
    return {**row, **gone, "next_offsets": numbers}


def _as_version_1(redrive: Redrive) -> None:
    """The tables as version 1 left them: its names of columns, none that came later, and no version."""
    spark, schema = redrive.loop.spark, redrive.loop.schema
    for table in ("ticks", "events", "publish_results", "deliveries"):
        iceberg = iceberg_table(spark, f"{schema}.{table}")
        dropping = iceberg.updateSchema()
        for name in migration._ADDED[3].get(table, {}):
            dropping = dropping.deleteColumn(name)
        dropping.commit()
        for version in sorted(migration._RENAMED, reverse=True):
            renames = migration._RENAMED[version].get(table, {})
            renaming = iceberg.updateSchema()
            for old, new in renames.items():
                *path, name = old.split(".")
                today = ".".join([*(renames.get(part, part) for part in path), new])
                renaming = renaming.renameColumn(today, name)
            renaming.commit()
        iceberg.updateProperties().remove(migration.PROPERTY).commit()
        spark.sql(f"refresh table {schema}.{table}")
    for view in ("circuit_breakers", "decision_feed", "gates", "announcements"):
        spark.sql(f"drop view if exists {schema}.{view}")


def _commit(redrive: Redrive, topic: str, offset: int) -> None:
    """The group says that it has processed what lies before an offset."""
    consumer = Consumer({**redrive.kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_circuit_breaker_opens_probes_and_closes_over_a_restart_with_nothing_lost_or_charged(quick: Redrive) -> None:
    quick.domain("breaker")
    quick.domain("free")
    # a group that commits offsets: only they say that a probe has succeeded
    _commit(quick, "breaker.orders-billing-retry", 0)
    failed = [quick.fails("breaker.orders", b"k", b"%d" % number, error=BLOCKING) for number in range(5)]
    # the oldest alone comes back; the others are held
    (probe,) = quick.retries("breaker", 1)
    quick.until(lambda: (breaker := _breaker(quick, "billing:breaker.orders")) and breaker["held"] == 4, "four messages held")
    assert probe.value == failed[0].value
    assert _holds(quick, "billing:breaker.orders")
    # the other key is as free as before
    quick.fails("free.orders", b"k", b"free")
    quick.retries("free", 1)
    # the probe fails, and is alone again: at its own pace
    quick.report(probe, error=BLOCKING)
    second = quick.retries("breaker", 2)[-1]
    assert (second.value, second.header("redrive-attempt")) == (probe.value, "3")
    quick.restart()
    quick.report(second, error=BLOCKING)
    quick.fails("breaker.orders", b"k", b"5", error="TimeoutError")
    third = quick.retries("breaker", 3)[-1]
    assert third.value == probe.value
    quick.until(lambda: _breaker(quick, "billing:breaker.orders")["held"] == 5, "five messages held")
    assert _breaker(quick, "billing:breaker.orders")["probes"] == 3
    # the third is processed: the circuit breaker closes, and what was held follows, each once, the oldest first
    _commit(quick, "breaker.orders-billing-retry", third.offset + 1)
    quick.retries("breaker", 8)
    quick.settle()
    records = quick.read("breaker.orders-billing-retry")
    assert [record.value for record in records[3:]] == [b"1", b"2", b"3", b"4", b"5"]
    assert {record.header("redrive-attempt") for record in records[3:]} == {"2"}
    rows = quick.sql("select * from attempts where original_topic = 'breaker.orders'")
    assert sorted((row["original_offset"], row["attempt"]) for row in rows) == [(0, 1), (0, 2), (0, 3), *((n, 1) for n in range(1, 6))]
    quick.until(lambda: _breaker(quick, "billing:breaker.orders")["state"] == "closed", "a closed circuit breaker")
    assert _breaker(quick, "billing:breaker.orders")["held"] == 0
    states = _states(quick, BREAKERS, "billing:breaker.orders")
    assert (states[0], states[-1]) == ("open", "closed")
    # in the words of the version before, for its consumers
    states = _states(quick, GATES, "billing:breaker.orders")
    assert (states[0], states[-1]) == ("closed", "open")
    (gate,) = quick.sql("select * from gates where scope = 'billing:breaker.orders'")
    assert (gate["state"], gate["since"] < gate["opened_at"]) == ("open", True)
    # each message was sent in the end
    found = {row["state"] for row in quick.sql("select state from messages where original_topic = 'breaker.orders'")}
    assert found
    assert found <= {"sent", "recovered"}
    quick.settle()


def test_a_probe_that_dies_is_followed_by_the_next_and_what_the_group_has_processed_has_recovered(quick: Redrive) -> None:
    quick.domain("died")
    topic = "died.orders-billing-retry"
    _commit(quick, topic, 0)
    quick.fails("died.orders", b"k", b"0", error=BLOCKING)
    quick.fails("died.orders", b"k", b"1", error=BLOCKING)
    (first,) = quick.retries("died", 1)
    quick.until(lambda: (breaker := _breaker(quick, "billing:died.orders")) and breaker["held"] == 1, "a message held")
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
    assert _holds(quick, "billing:died.orders")
    _commit(quick, topic, second.offset + 1)
    quick.until(lambda: _breaker(quick, "billing:died.orders")["state"] == "closed", "a closed circuit breaker")
    quick.settle()
    states = {row["original_offset"]: row["state"] for row in quick.sql("select * from messages where original_topic = 'died.orders'")}
    assert states == {0: "dead", 1: "recovered"}


def test_where_order_matters_a_partition_has_a_circuit_breaker_of_its_own(quick: Redrive) -> None:
    quick.domain("parts", partitions=2)
    _commit(quick, "parts.orders-billing-retry", 0)
    path = quick.loop.settings.seeds / "routes.csv"
    routes = path.read_text(encoding="utf-8")
    header, *rows = routes.splitlines()
    try:
        path.write_text("\n".join([f"{header},circuit_breaker_per", *(f"{row},partition" for row in rows)]) + "\n", encoding="utf-8")
        for partition in (0, 1):
            _, offset = quick.write("parts.orders", b"k", b"%d" % partition, partition=partition)
            record = Record("parts.orders", partition, offset, 0, b"k", b"%d" % partition, ())
            quick.report(record, error=BLOCKING if partition == 0 else "TimeoutError")
            quick.report(Record("parts.orders", partition, offset + 1, 0, b"k", b"later", ()), error="TimeoutError")
        quick.until(lambda: (breaker := _breaker(quick, "billing:parts.orders/0")) and breaker["held"] == 1, "a message held")
        records = quick.retries("parts", 3)
        assert sorted((record.partition, record.value) for record in records) == [(0, b"0"), (1, b"1"), (1, b"later")]
        assert _breaker(quick, "billing:parts.orders/1") is None
        _commit(quick, "parts.orders-billing-retry", 1)
        quick.retries("parts", 4)
    finally:
        path.write_text(routes, encoding="utf-8")
        quick.loop.tick()
    quick.settle()


def test_a_circuit_breaker_of_a_group_that_commits_nothing_closes_when_no_report_comes(quick: Redrive) -> None:
    quick.domain("silent")
    quick.fails("silent.orders", b"k", b"0", error=BLOCKING)
    quick.retries("silent", 1)
    quick.until(lambda: (breaker := _breaker(quick, "billing:silent.orders")) and breaker["state"] == "closed", "a closed circuit breaker")
    (row,) = quick.sql("select * from messages where original_topic = 'silent.orders'")
    assert row["state"] == "sent"
    quick.settle()


def test_a_start_on_tables_of_an_earlier_version_goes_on_with_what_they_hold_back(quick: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    quick.domain("older")
    topic, key = "older.orders-billing-retry", "billing:older.orders"
    _commit(quick, topic, 0)
    failed = [quick.fails("older.orders", b"k", b"%d" % number, error=BLOCKING) for number in range(3)]
    (probe,) = quick.retries("older", 1)
    quick.until(lambda: (breaker := _breaker(quick, key)) and breaker["held"] == 2, "two messages held")
    decided = sorted(row["input_id"] for row in quick.sql("select input_id from decisions where original_topic = 'older.orders'"))
    as_row = LoopState.as_row
    with monkeypatch.context() as patch:
        patch.setattr(LoopState, "as_row", lambda state: _in_columns_of_before(as_row(state)))
        quick.loop.close()
    _as_version_1(quick)
    assert "gates" in quick.loop.spark.table(f"{quick.loop.schema}.ticks").columns
    quick.restart()
    # what blocked is as it was: open, with its probe, and what it holds
    assert quick.loop.state.breakers[key].is_open
    assert (_holds(quick, key), _breaker(quick, key)["held"], _breaker(quick, key)["probes"]) == (True, 2, 1)
    assert decided == sorted(row["input_id"] for row in quick.sql("select input_id from decisions where original_topic = 'older.orders'"))
    assert [record.value for record in quick.read(topic)] == [failed[0].value]
    # the probe is processed: everything goes on
    _commit(quick, topic, probe.offset + 1)
    quick.retries("older", 3)
    quick.until(lambda: not _holds(quick, key), "a closed circuit breaker")
    assert [record.value for record in quick.read(topic)] == [b"0", b"1", b"2"]
    quick.settle()
