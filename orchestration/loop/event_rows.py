"""Records, rows of outboxes, and gaps as rows of the ledger `events`."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from orchestration.kafka.cluster import Partition, Range
from orchestration.kafka.records import LAST_MILLIS
from orchestration.loop.discovery import COMMANDS
from orchestration.loop.positions import Gap
from orchestration.settings import Settings
from orchestration.tables import synthetic_events
from orchestration.tables.ledgers import AppendError
from orchestration.tables.spark import FROM_KAFKA, java_errors

# What a record, and each of its headers, takes in memory beside their own bytes: an estimate, in bytes.
_ROW_BYTES = 512
_HEADER_BYTES = 48

_COMMAND_ID = "^[0-9a-f-]{36}$"


def from_kafka(spark: SparkSession, settings: Settings, taken: list[Range]) -> DataFrame:
    """Records of some partitions, read by Spark: only those of committed transactions."""

    def offsets(of: Mapping[Partition, int]) -> str:
        by_topic: dict[str, dict[str, int]] = {}
        for partition, offset in of.items():
            by_topic.setdefault(partition.topic, {})[str(partition.number)] = offset
        return json.dumps(by_topic)

    begin = {part.partition: part.begin for part in taken}
    topics = {part.partition.topic for part in taken}
    reader = spark.read.format("kafka")
    for name, value in settings.kafka_java_properties.items():
        reader = reader.option(f"kafka.{name}", value)
    return (
        reader.option("kafka.isolation.level", "read_committed")
        # Spark asks for a partition's end behind its own fetch on the same connection: the default would cost half a second for each
        .option("kafka.fetch.max.wait.ms", "10")
        .option("assign", json.dumps({topic: [where.number for where in begin if where.topic == topic] for topic in sorted(topics)}))
        .option("startingOffsets", offsets(begin))
        .option("endingOffsets", offsets({part.partition: part.end for part in taken}))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
        .withColumns({"millis": F.unix_millis("timestamp"), "problem": F.lit(None).cast("string")})
    )


def as_events(records: DataFrame, taken: list[Range]) -> DataFrame:
    """Records as events: reports, and records of commands. taken: the ranges that they are from."""
    topics = {part.partition.topic: part.source for part in taken}
    source = F.create_map(*[F.lit(text) for topic, name in topics.items() for text in (topic, name)])
    ids = {part.partition.topic: part.partition.topic_id for part in taken}
    topic_id = F.create_map(*[F.lit(text) for topic, tid in ids.items() for text in (topic, tid)])[F.col("topic")]
    for part in taken:
        if part.partition.topic_id != ids[part.partition.topic]:
            # a partition that was cut short has another topic id than the others of its topic
            is_there = (F.col("topic") == part.partition.topic) & (F.col("partition") == part.partition.number)
            topic_id = F.when(is_there, part.partition.topic_id).otherwise(topic_id)
    is_command = source[F.col("topic")] == COMMANDS
    key = F.col("key").cast("string")
    # -1 means that a record has no timestamp; a value out of range counts as none, too, and `detail` shows it
    holds = F.col("millis").between(0, LAST_MILLIS)
    problem = F.when(~holds & (F.col("millis") != -1), F.concat(F.lit("timestamp "), F.col("millis").cast("string")))
    return records.select(
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        F.lit(0).alias("index"),
        F.when(is_command, "command").otherwise("report").alias("kind"),
        source[F.col("topic")].alias("source"),
        "topic",
        "key",
        "value",
        "headers",
        F.when(holds, F.timestamp_millis("millis")).alias("record_timestamp"),
        (F.col("timestampType") == 1).alias("stamped_by_broker"),
        F.nullif(F.concat_ws(", ", problem, "problem"), F.lit("")).alias("detail"),
        F.when(is_command & key.rlike(_COMMAND_ID), key).alias("command"),
    )


def gap_events(spark: SparkSession, gaps: list[Gap], batch: int) -> DataFrame:
    """Gaps as events. batch: the batch of their append."""
    events = [
        synthetic_events.gap(
            batch, place, source=gap.source, topic=gap.partition.topic, number=gap.partition.number, partition_key=gap.partition.key,
            begin=gap.begin, end=gap.end, goes_on_at=gap.goes_on_at,
        )
        for place, gap in enumerate(gaps)
    ]  # fmt: skip
    return synthetic_events.as_rows(spark, events)


def of_outbox(spark: SparkSession, name: str, rows: pa.Table, batch: int) -> DataFrame:
    """Rows of an outbox, in their order, as events. rows: TAKEN (orchestration/outbox/database.py). batch: the batch of their append.

    The coordinates are the batch and the place in it: a row that is pending again is another event.
    """
    numbered = rows.append_column("index", pa.array(range(rows.num_rows), pa.int32()))
    return (
        spark.createDataFrame(numbered)
        .coalesce(1)
        .select(
            F.lit(f"outbox:{name}").alias("topic_id"),
            F.lit(0).alias("partition"),
            F.lit(batch).alias("offset"),
            "index",
            F.lit("row").alias("kind"),
            F.lit(name).alias("source"),
            "topic",
            "key",
            "value",
            "headers",
            F.col("created_at").alias("record_timestamp"),
            F.col("row_id").alias("detail"),
            "sequence",
            "attempts",
            F.col("next_retry_at").alias("due_at"),
        )
    )


def measures(sources: list[str]) -> list[Column]:
    """What is counted while records are appended: for each source, how many there are, and their size in memory."""
    headers = F.aggregate(
        "headers",
        F.lit(0).cast("long"),
        lambda total, header: total + F.length(header["key"]) + F.coalesce(F.length(header["value"]), F.lit(0)) + F.lit(_HEADER_BYTES),
    )
    size = (
        F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(headers, F.lit(0)) + F.lit(_ROW_BYTES)
    )
    measures: list[Column] = []
    for place, source in enumerate(sources):
        is_of = F.col("source") == source
        measures.append(F.count_if(is_of).alias(f"rows{place}"))
        measures.append(F.coalesce(F.sum(F.when(is_of, size)), F.lit(0)).alias(f"bytes{place}"))
    return measures


def is_of_kafka(error: AppendError) -> bool:
    """Whether reading from Kafka failed, and not writing to the ledger."""
    return any(one.is_raised_in(FROM_KAFKA, "org.apache.kafka.") for one in java_errors(error.__cause__ or error))
