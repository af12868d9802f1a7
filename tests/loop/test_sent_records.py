"""Which deliveries are found in a range of a topic, on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from orchestration.kafka.cluster import Cluster
from orchestration.kafka.sent_records import find_sent

DUE = 1_790_000_000_123


def named(delivery: str, due: int | str = DUE) -> list[tuple[str, Any]]:
    """The headers of a delivery."""
    return [("redrive-delivery", delivery.encode()), ("redrive-due", str(due).encode())]


def write(kafka: Mapping[str, str], topic: str, *headers: Any, **properties: Any) -> None:
    """Writes a record for each list of headers."""
    producer = Producer({**kafka, **properties})
    for some in headers:
        producer.produce(topic, b"value", headers=some)
    assert producer.flush(10) == 0


def transaction(kafka: Mapping[str, str], topic: str, delivery: str) -> Producer:
    """A producer with an open transaction, in which it has written a record."""
    producer = Producer({**kafka, "transactional.id": f"{topic}-other"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"value", headers=named(delivery))
    assert producer.flush(10) == 0
    return producer


def read(kafka: dict[str, str], topic: str, begin: int, end: int, patience: float = 10) -> list[dict[str, Any]]:
    """What is found in partition 0."""
    ranges = pa.RecordBatch.from_pylist([{"topic": topic, "partition": 0, "begin": begin, "end": end}])
    return [row for batch in find_sent([ranges], kafka, "redrive-test", patience) for row in batch.to_pylist()]


def test_it_finds_records_that_name_a_delivery_and_no_others(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("retries")
    write(
        kafka, topic,
        named("before"),
        named("first"),
        None,
        [("redrive-delivery", b"no due time")],
        named("no number", "soon"),
        named("a number that is no time", "9" * 30),
        named("a time after the last one of Python", 253_402_300_800_000),
        # the message had headers of these names: ours come last
        [*named("of the message", 5), *named("last")],
        named("after"),
    )  # fmt: skip
    found = read(kafka, topic, 1, 8)
    assert [(row["offset"], row["delivery_id"]) for row in found] == [(1, "first"), (7, "last")]
    assert all(round(row["due_at"].timestamp() * 1000) == DUE and row["problem"] is None for row in found)
    assert all(abs(row["sent_at"].timestamp() - time.time()) < 60 for row in found)


def test_ranges_of_one_partition_are_read_one_after_the_other(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("retries")
    write(kafka, topic, *(named(str(number)) for number in range(5)))
    ranges = [{"topic": topic, "partition": 0, "begin": begin, "end": end} for begin, end in ((3, 5), (0, 2), (2, 3))]
    found = find_sent([pa.RecordBatch.from_pylist(ranges)], kafka, "redrive-test")
    assert [row["offset"] for batch in found for row in batch.to_pylist()] == [3, 4, 0, 1, 2]


def test_aborted_records_are_not_found_and_markers_at_the_end_end_it(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("retries")
    transaction(kafka, topic, "aborted").abort_transaction(10)
    transaction(kafka, topic, "committed").commit_transaction(10)
    # two records and two markers
    assert [row["delivery_id"] for row in read(kafka, topic, 0, 4)] == ["committed"]


def test_what_an_open_transaction_hides_is_a_problem_until_it_ends(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("orders")
    write(kafka, topic, named("before"))
    producer = transaction(kafka, topic, "theirs")
    write(kafka, topic, named("behind"))
    hidden = read(kafka, topic, 0, 3, patience=1)
    assert [(row["delivery_id"], row["error_code"]) for row in hidden] == [("before", None), (None, KafkaError._TIMED_OUT)]
    producer.abort_transaction(10)
    assert [row["delivery_id"] for row in read(kafka, topic, 0, 3)] == ["before", "behind"]


def test_records_that_retention_has_removed_are_no_problem(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("retries")
    write(kafka, topic, named("removed"), named("there"))
    admin = AdminClient({**kafka})
    admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0, 1)].result()
    assert [row["delivery_id"] for row in read(kafka, topic, 0, 2)] == ["there"]


def test_a_broker_that_is_gone_is_a_problem_of_each_partition() -> None:
    (row,) = read({"bootstrap.servers": "127.0.0.1:1"}, "retries", 0, 2, patience=1)
    assert (row["topic"], row["partition"], row["delivery_id"], row["error_code"]) == ("retries", 0, None, KafkaError._TIMED_OUT)


@pytest.mark.parametrize("partitions", [2])
def test_the_range_since_a_moment_has_open_transactions(kafka: dict[str, str], create_topic: Callable[..., str], partitions: int) -> None:
    topic = create_topic("retries", partitions=partitions)
    cluster = Cluster(kafka)
    (described,) = cluster.describe([topic]).values()
    places = described.all_partitions

    def since(millis: int) -> dict[int, tuple[int, int]]:
        return {one.number: offsets for one, offsets in cluster.since(dict.fromkeys(places, millis)).items()}

    assert since(0) == {0: (0, 0), 1: (0, 0)}
    producer = Producer({**kafka})
    now = int(time.time() * 1000)
    for at in (now - 60_000, now - 1_000):
        producer.produce(topic, b"value", partition=1, timestamp=at)
    assert producer.flush(10) == 0
    assert since(now - 120_000) == {0: (0, 0), 1: (0, 2)}
    assert since(now - 30_000) == {0: (0, 0), 1: (1, 2)}
    assert since(now + 60_000) == {0: (0, 0), 1: (2, 2)}
    other = Producer({**kafka, "transactional.id": f"{topic}-other"})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(topic, b"value", partition=0)
    assert other.flush(10) == 0
    assert since(now - 30_000) == {0: (0, 1), 1: (1, 2)}
    other.abort_transaction(10)
