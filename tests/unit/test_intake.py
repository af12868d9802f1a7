"""Where a source begins, and what is read of it while parts of Kafka give no answer. What is read: tests/loop."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka import Producer

from orchestration.cluster import Cluster
from orchestration.intake import Intake
from orchestration.seeds import Row
from orchestration.settings import load_settings
from tests.unit.publisher_kit.mock_cluster import MockCluster


def intake(brokers: MockCluster, *sources: tuple[str, str, str]) -> Intake:
    """Of sources with name, topic and start; without tables, as nothing is taken."""
    kafka = {"bootstrap.servers": brokers.bootstrap}
    rows = tuple(Row(0, {"source": name, "topic": topic, "start": start}) for name, topic, start in sources)
    nothing = cast(Any, None)
    return Intake(nothing, load_settings(kafka=kafka), Cluster(kafka, timeout_seconds=2), nothing, rows, {})


def report(brokers: MockCluster, topic: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    producer.produce(topic, b"report", partition=partition)
    assert producer.flush(10) == 0


def read(one: Intake, now: float) -> list[tuple[str, int, int, int]]:
    """What can be read: topic, partition, first and last offset."""
    return sorted((part.partition.topic, part.partition.number, part.begin, part.end) for part in one.available(now))


def test_a_partition_without_an_answer_is_named_and_left_alone_and_stops_no_other(two_brokers: MockCluster) -> None:
    one = intake(two_brokers, ("reports", "half", "earliest"))
    report(two_brokers, "half", 0)
    report(two_brokers, "half", 1)
    assert read(one, 0) == [("half", 0, 0, 1), ("half", 1, 0, 1)]
    with two_brokers.down(2):
        assert read(one, 1) == [("half", 0, 0, 1)]
        assert one.unanswered == ["half/1"]
        asked: list[object] = []
        ends = one.cluster.ends
        one.cluster.ends = lambda partitions: ends([where for where in partitions if not asked.append(where)])  # type: ignore[method-assign, func-returns-value]
        assert read(one, 2) == [("half", 0, 0, 1)]
        assert len(asked) == 1, "what gave no answer is not asked again at once"
        assert one.unanswered == ["half/1"]
    assert read(one, 40) == [("half", 0, 0, 1), ("half", 1, 0, 1)]
    assert one.unanswered == []


def test_a_source_that_begins_at_the_end_waits_for_the_ends_of_all_its_partitions(two_brokers: MockCluster) -> None:
    one = intake(two_brokers, ("reports", "half", "latest"))
    report(two_brokers, "half", 0)
    report(two_brokers, "half", 1)
    with two_brokers.down(2):
        assert read(one, 0) == []
        assert (one.positions, one.begun, one.unanswered) == ({}, 0, ["half/1"])
    assert read(one, 40) == []
    assert one.begun == 1
    report(two_brokers, "half", 1)
    assert read(one, 41) == [("half", 1, 1, 2)]


def test_a_source_all_of_whose_partitions_give_no_answer_stops_no_other(two_brokers: MockCluster) -> None:
    two_brokers.create("away")
    two_brokers.lead("away", 0, 2)
    one = intake(two_brokers, ("away", "away", "latest"), ("reports", "half", "earliest"))
    two_brokers.lead("half", 1, 1)
    report(two_brokers, "half", 1)
    with two_brokers.down(2):
        assert read(one, 0) == [("half", 1, 0, 1)]
        assert one.unanswered == ["away/0"]


def test_where_a_source_began_at_the_end_is_worth_keeping_and_at_the_beginning_is_not(mock_cluster: MockCluster) -> None:
    mock_cluster.create("new")
    mock_cluster.create("old")
    one = intake(mock_cluster, ("new", "new", "latest"), ("old", "old", "earliest"), ("none yet", "none", "latest"))
    one.available(0)
    assert one.begun == 2
    one.begun = 0
    one.available(10)
    assert one.begun == 0
