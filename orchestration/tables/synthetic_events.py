"""The events that the loop writes itself, not read from Kafka: one constructor for each kind.

The decide step names each input by its coordinates (topic id, partition, offset, index), so no two events may share them. Each constructor
has a partition of its own under one topic id; offset and index are the batch of the append and the place there. If an event is
written in any other way, it may get the coordinates of another one; then one of the two gets no decision.

What an event says may depend on tables: whether the delivery of an order still waits, or what a refused report was. `not_waiting` and
`decided_anew` put this into orders that are rows of Spark's already, and keep their coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TOPIC_ID = "loop"
"""No topic of Kafka's has this id: Kafka's ids have 22 characters, and the ones used if Kafka has none begin with `name:`."""

SCHEMA = (
    "topic_id string, partition int, offset bigint, index int, kind string, source string, topic string, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, record_timestamp timestamp, stamped_by_broker boolean, detail string, "
    "delivery_id string, due_at timestamp, sequence string, attempts int, command string"
)
"""The columns of the ledger `events`, without those that each append adds."""

REPORTED = ("source", "topic", "key", "value", "headers", "record_timestamp", "stamped_by_broker")
"""The columns that a report which is decided anew has from the report itself."""

BreakerOrder: TypeAlias = Literal["probe", "release"]
"""`probe`: to send the oldest delivery that a circuit breaker holds, to see whether it succeeds. `release`: what a closed one held."""

# Not 0: earlier versions wrote both starts and gaps there, and tables have them still.
_BREAKERS, _COMMANDS, _GAPS, _STARTS, _FOLLOWERS = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class SyntheticEvent:
    """A row of SCHEMA: what a kind of event doesn't have is null. models/ledgers/events.yml says what each column means.

    offset: the batch of the append. index: the place in it, from 0. Times are aware, in UTC.
    """

    topic_id: str
    partition: int
    offset: int
    index: int
    kind: str
    source: str | None = None
    topic: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: None = None
    record_timestamp: datetime | None = None
    stamped_by_broker: None = None
    detail: str | None = None
    delivery_id: str | None = None
    due_at: datetime | None = None
    sequence: None = None
    attempts: None = None
    command: str | None = None


def start(batch: int, instance: str) -> SyntheticEvent:
    """The row that a loop appends when it takes charge, or after an append of unknown outcome, which is refused from then on.

    instance: the name of the installation.
    """
    return SyntheticEvent(TOPIC_ID, _STARTS, batch, 0, "start", detail=instance)


def gap(
    batch: int, place: int, *, source: str, topic: str, number: int, partition_key: str, begin: int, end: int, goes_on_at: int
) -> SyntheticEvent:
    """The offsets [begin, end) of partition `number` of a topic are missing.

    partition_key: the partition as the keys of `ticks.next_offsets` name it. goes_on_at: the offset at which reading goes on.
    """
    return SyntheticEvent(
        TOPIC_ID, _GAPS, batch, place, "gap", source, topic,
        key=partition_key.encode(), value=str(goes_on_at).encode(), detail=f"{topic}/{number} {begin}-{end - 1}",
    )  # fmt: skip


def breaker_order(batch: int, place: int, kind: BreakerOrder, delivery_id: str, due_at: datetime, breaker_key: str) -> SyntheticEvent:
    """The order of a circuit breaker about a delivery that it holds."""
    return SyntheticEvent(TOPIC_ID, _BREAKERS, batch, place, kind, detail=breaker_key, delivery_id=delivery_id, due_at=due_at)


def follower_order(batch: int, place: int, kind: str, delivery_id: str, due_at: datetime, epoch: str | None) -> SyntheticEvent:
    """The order about a follower. kind: `in_turn` or `follows_a_dead_message`. place: those of one sequence come in its order.

    epoch: the last failure in the sequence.
    """
    return SyntheticEvent(TOPIC_ID, _FOLLOWERS, batch, place, kind, detail=epoch, delivery_id=delivery_id, due_at=due_at)


def command_order(
    batch: int, place: int, command: str, what: str, delivery_id: str, due_at: datetime, destination: str | None, send_at: datetime | None
) -> SyntheticEvent:
    """The order of an operator's command about one delivery of its list.

    place: the place in the list; the highest index shows how much of the list is issued. what: what the command wants. destination: where
    a redrive is to go. send_at: when the message is to be sent, which the event has as the time of its record; None: as soon as it is
    decided.
    """
    return SyntheticEvent(
        TOPIC_ID, _COMMANDS, batch, place, what,
        record_timestamp=send_at, detail=destination if what == "redrive" else None,
        delivery_id=delivery_id, due_at=due_at, command=command,
    )  # fmt: skip


def as_rows(spark: SparkSession, events: Iterable[SyntheticEvent]) -> DataFrame:
    """The events as rows of SCHEMA."""
    return spark.createDataFrame([tuple(vars(event).values()) for event in events], SCHEMA)


def not_waiting(orders: DataFrame, waiting: DataFrame) -> DataFrame:
    """Orders about waiting messages; `detail` is `not_waiting` where the delivery is none of `waiting` (delivery_id, due_at)."""
    found = waiting.distinct().withColumn("waits", F.lit(True))
    detail = F.when(F.col("waits").isNull(), "not_waiting")
    return orders.join(found, ["delivery_id", "due_at"], "left").withColumn("detail", detail).drop("waits")


def with_epochs(orders: DataFrame, followers: DataFrame) -> DataFrame:
    """Orders about followers, with the last failure in the sequence of each: its consumer tries only what names that one."""
    epochs = followers.select("delivery_id", "due_at", "epoch")
    return orders.join(epochs, ["delivery_id", "due_at"], "left").withColumn("detail", F.col("epoch")).drop("epoch")


def decided_before(events: DataFrame) -> DataFrame:
    """Of events, the reports that were written once more to be decided anew: delivery_id and due_at of the refusal, and the input_id."""
    again = (F.col("topic_id") == TOPIC_ID) & (F.col("kind") == "report")
    return events.where(again).select(
        "delivery_id", "due_at", F.concat_ws("/", "topic_id", "partition", "offset", "index").alias("input_id")
    )


def answered_already(orders: DataFrame, before: DataFrame) -> DataFrame:
    """Orders of a redrive; those for a refused message that was decided anew before, or is to be, say so: a second time is once too often.

    before: delivery_id and due_at of such refusals.
    """
    known = F.col("known").isNotNull()
    return (
        orders.join(F.broadcast(before.withColumn("known", F.lit(1))), ["delivery_id", "due_at"], "left")
        .withColumn("detail", F.when(known, F.lit("answered_already")).otherwise(F.col("detail")))
        .drop("known")
    )


def decided_anew(orders: DataFrame, reports: DataFrame) -> DataFrame:
    """Orders of a redrive; in place of an order for a refused message, its report once more, which is decided anew.

    reports: the columns REPORTED, `input_id` (the id of the event that the report was first), and delivery_id and due_at of the refusal.
    The event keeps this due_at: the report counts as having come then.
    """
    again = F.col("input_id").isNotNull()
    return (
        orders.withColumnRenamed("record_timestamp", "send_at")
        .drop(*REPORTED)
        .join(reports, ["delivery_id", "due_at"], "left")
        .withColumns(
            {
                "kind": F.when(again, "report").otherwise(F.col("kind")),
                "detail": F.coalesce("input_id", "detail"),
                "record_timestamp": F.when(again, F.col("record_timestamp")).otherwise(F.col("send_at")),
            }
        )
        .drop("input_id", "send_at")
    )
