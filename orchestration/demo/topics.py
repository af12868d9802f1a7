"""Creates the demo's topics, and reads them back to check that each report led to a retry or a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from orchestration.kafka import clients
from orchestration.kafka.cluster import Cluster
from orchestration.kafka.topics import HEADER_ROOM_BYTES
from orchestration.loop.loop import Loop

_TOPICS = ("orders", "orders-billing-retry", "orders.dlq", "redrive.failures", "redrive.failures.dlq")
# One partition, as a command's records are read in the order in which they were written.
_PARTITIONS_OF_COMMANDS = 1
_PARTITIONS = 3
_LARGEST = 2 * 1024 * 1024


def make_topics(kafka: dict[str, str], commands: str) -> dict[TopicPartition, int]:
    """Creates missing topics; returns the end of each partition, after which the demo writes.

    commands: the topic of operators' commands, if any, so that they can be given on the state that the demo leaves.
    """
    cluster = Cluster(kafka)
    names = set(cluster.topic_names())
    if commands and commands not in names:
        cluster.create([NewTopic(commands, num_partitions=_PARTITIONS_OF_COMMANDS, replication_factor=1)])
    there = cluster.describe(set(_TOPICS) & names)
    ends = cluster.ends(partition for topic in there.values() for partition in topic.all_partitions)
    missing = sorted(set(_TOPICS) - there.keys())
    cluster.create(
        NewTopic(
            name,
            num_partitions=_PARTITIONS,
            replication_factor=1,
            # as `redrive check` requires: room for our headers on the largest record of the original
            config={"max.message.bytes": str(_LARGEST + (0 if name in ("orders", "redrive.failures") else HEADER_ROOM_BYTES))},
        )
        for name in missing
    )
    return {
        **{TopicPartition(partition.topic, partition.number): end for partition, end in ends.items()},
        **{TopicPartition(name, number): 0 for name in missing for number in range(_PARTITIONS)},
    }


@dataclass(frozen=True)
class Findings:
    """What the topics have. `lost`: ids of messages with a report that led to no retry or dead letter, and that don't wait."""

    orders: int
    lost: list[str]
    early: int
    twice: int
    retries: int
    dead: int


def audit(loop: Loop, kafka: dict[str, str], begins: dict[TopicPartition, int], orders: list[dict[str, Any]]) -> Findings:
    """Counts in Kafka: each report must have led to a retry or a dead letter there, or to a delivery that waits in the tables."""
    sent = list(read_since(kafka, begins, ("orders-billing-retry", "orders.dlq")))
    answers = Counter(headers["redrive-message-id"] for _, headers, _, _ in sent)
    reports = Counter(_reported_message(headers) for _, headers, _, _ in read_since(kafka, begins, ("redrive.failures",)))
    open_states = "('waiting', 'dead_letter_pending')"
    waiting = {
        row["message_id"] for row in loop.spark.sql(f"select message_id from {loop.schema}.messages where state in {open_states}").collect()
    }
    deliveries = Counter(headers["redrive-delivery"] for _, headers, _, _ in sent)
    return Findings(
        orders=len(orders),
        lost=sorted(message for message, count in reports.items() if answers[message] + (message in waiting) < count),
        early=sum(timestamp < int(headers["redrive-due"]) for _, headers, timestamp, _ in sent),
        twice=sum(count - 1 for count in deliveries.values()),
        retries=sum(topic == "orders-billing-retry" for topic, _, _, _ in sent),
        dead=sum(topic == "orders.dlq" for topic, _, _, _ in sent),
    )


def _reported_message(headers: dict[str, str]) -> str:
    where = "{redrive-original-topic}/{redrive-original-partition}/{redrive-original-offset}".format_map(headers)
    return headers.get("redrive-message-id") or f"{headers['redrive-consumer-group']}:{where}"


def read_since(kafka: dict[str, str], begins: dict[TopicPartition, int], topics: tuple[str, ...]) -> Iterator[Any]:
    """The committed records of topics since the demo began, up to where they end now: topic, headers, timestamp in ms, value."""
    cluster = Cluster(kafka)
    there = cluster.describe({where.topic for where in begins if where.topic in topics}).values()
    ends = {(one.topic, one.number): end for one, end in cluster.ends(one for topic in there for one in topic.all_partitions).items()}
    consumer = clients.reader(kafka, "redrive.demo")
    partitions = [TopicPartition(where.topic, where.partition, offset) for where, offset in begins.items() if where.topic in topics]
    consumer.assign(partitions)
    unread = {(where.topic, where.partition) for where in partitions}
    try:
        while unread:
            record = consumer.poll(10)
            if record is None:
                raise KafkaException("the topics could not be read back within 10 s")
            if (problem := record.error()) is not None:
                # any other error is passed over: if no record follows it, the poll above fails
                place: Any = (record.topic(), record.partition())
                if problem.code() == KafkaError._PARTITION_EOF and (record.offset() or 0) >= ends.get(place, 0):
                    unread.discard(place)
                continue
            pairs: Any = record.headers() or []
            headers = {name: value.decode() for name, value in pairs if name.startswith("redrive-") and value is not None}
            yield record.topic(), headers, record.timestamp()[1], record.value()
    finally:
        consumer.close()
