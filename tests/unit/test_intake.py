"""Where a source begins, and what is read of it while parts of Kafka give no answer. What is read: tests/loop."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import Producer

from orchestration.kafka.cluster import Cluster, Partition
from orchestration.loop.discovery import COMMANDS
from orchestration.loop.intake import Intake
from orchestration.loop.positions import Gap, SourceOffsets
from orchestration.rules.seeds import Row
from orchestration.settings import load_settings
from tests.unit.publisher_kit.mock_cluster import MockCluster


def intake(brokers: MockCluster, *sources: tuple[str, str, str], commands_topic: str = "") -> Intake:
    """Of sources with name, topic and start; without tables, as nothing is taken."""
    kafka = {"bootstrap.servers": brokers.bootstrap}
    rows = tuple(
        Row(0, {"source": name, "topic": topic, "start": start, "speaks_for": f"{topic}-orders ^{topic}"}) for name, topic, start in sources
    )
    nothing = cast(Any, None)
    return Intake(
        nothing,
        load_settings(kafka=kafka, commands_topic=commands_topic),
        Cluster(kafka, timeout_seconds=2),
        nothing,
        rows,
        SourceOffsets(),
    )


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
        # a stub, which notes in passing
        one.cluster.ends = lambda partitions: ends([where for where in partitions if not asked.append(where)])  # type: ignore[method-assign, func-returns-value]
        assert read(one, 2) == [("half", 0, 0, 1)]
        assert len(asked) == 1, "what gave no answer is not asked again at once"
        assert one.unanswered == ["half/1"]
    assert read(one, 40) == [("half", 0, 0, 1), ("half", 1, 0, 1)]
    assert one.unanswered == []


def test_commands_are_read_as_such_at_once_also_if_a_source_s_pattern_matches_their_topic(two_brokers: MockCluster) -> None:
    """A start takes in what has come before it loads the rules."""
    one = intake(two_brokers, ("reports", "^half", "earliest"), commands_topic="half")
    report(two_brokers, "half", 0)
    (found,) = one.available(0)
    assert (found.source, found.partition.topic) == (COMMANDS, "half")


def test_a_source_that_begins_at_the_end_waits_for_the_ends_of_all_its_partitions(two_brokers: MockCluster) -> None:
    one = intake(two_brokers, ("reports", "half", "latest"))
    report(two_brokers, "half", 0)
    report(two_brokers, "half", 1)
    with two_brokers.down(2):
        assert read(one, 0) == []
        assert (one.offsets, one.begun, one.unanswered) == (SourceOffsets(), 0, ["half/1"])
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
    one.kept()
    one.available(10)
    assert one.begun == 0


def test_a_partition_that_ends_before_its_position_has_a_gap_and_is_read_on_under_another_id(mock_cluster: MockCluster) -> None:
    mock_cluster.create("cut")
    one = intake(mock_cluster, ("reports", "cut", "earliest"))
    for _ in range(2):
        report(mock_cluster, "cut")
    ((part,),) = [one.available(0)]
    one.offsets = one.offsets.moved({part.partition: 5})
    one.ledgers = cast(Any, SimpleNamespace(next_batch=9))
    assert one.available(1) == []
    assert one.is_cut
    (gap,) = one._cuts()
    cut = replace(part.partition, topic_id=f"{part.partition.topic_id}~9")
    assert gap == Gap("reports", cut, 2, 5, goes_on_at=2)
    assert one.unread([]) == {"cut-orders", "^cut"}

    one.offsets = one.offsets.moved({cut: gap.goes_on_at})
    one.discovery.look_again()
    report(mock_cluster, "cut")
    assert [(found.partition, found.begin, found.end) for found in one.available(2)] == [(cut, 2, 3)]
    assert not one.is_cut

    # where Kafka knows no ids, a topic that ends too early was created again: all of it is new
    renewed = Partition("cut", "name:cut", 0)
    one.discovery.partitions, one._ends, one.offsets = {"reports": [renewed]}, {renewed: 2}, SourceOffsets({renewed.key: 5})
    assert one._cuts() == [Gap("reports", replace(renewed, topic_id="name:cut~9"), 2, 5, goes_on_at=0)]


def test_what_is_not_read_of_a_source_is_what_it_speaks_for(two_brokers: MockCluster) -> None:
    two_brokers.create("other")
    one = intake(two_brokers, ("reports", "half", "earliest"), ("others", "other", "earliest"))
    report(two_brokers, "half", 0)
    report(two_brokers, "other", 0)
    found = one.available(0)
    assert one.unread(found) == {"half-orders", "^half", "other-orders", "^other"}
    for part in found:
        if part.source == "reports":
            one.offsets = one.offsets.moved({part.partition: part.end})
    assert one.unread(found) == {"other-orders", "^other"}
    one.offsets = one.offsets.moved({part.partition: part.end for part in found})
    assert one.unread(found) == frozenset()
    with two_brokers.down(2):
        one.available(1)
        assert one.unread([]) >= {"half-orders", "^half"}
