"""Proves redrive's promises over the live tables and topics, in Spark. May run beside the loop; it writes nothing.

What is judged is fixed first: results up to a batch. Then the topics are read, to where they end by then, so everything that these results
name must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from orchestration.clock import EPOCH, literal
from orchestration.kafka.cluster import Cluster, Partition
from orchestration.kafka.sent_records import FOUND, RANGES, find_sent
from orchestration.operators.promises import PROMISES, Promise
from orchestration.settings import Settings
from orchestration.tables.catalog import missing_tables, without_tables
from orchestration.tables.migration import unreadable_tables
from orchestration.tables.rows import collected
from orchestration.tables.spark import schema, session_to_ask

# How many breaches of a promise are named.
_NAMED = 20

# One task reads at most so many offsets of a partition at once.
_RANGE = 200_000

# Clocks of brokers and of Spark's machines differ: topics are read from so much earlier on.
_MARGIN = timedelta(seconds=60)


class VerificationError(Exception):
    """The promises can't be proved: there are no tables, or a topic can't be read."""

    exit_code = 2


@dataclass(frozen=True)
class Finding:
    """What breaks a promise: how often, and some of these breaches, as subject and detail."""

    promise: Promise
    broken: int
    named: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Verification:
    """What was proved. results, records, topics: how many were judged; gone: topics that don't exist any more, which can't be read."""

    since: datetime | None
    results: int
    records: int
    topics: int
    gone: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> int:
        """How many breaches there are."""
        return sum(finding.broken for finding in self.findings)


def verify(settings: Settings, since: datetime | None = None) -> Verification:
    """Proves all promises, for what was recorded since a moment; None: for everything.

    Raises VerificationError, ClusterError, SettingsError.
    """
    settings.require_brokers()
    spark = _session(settings)
    spark.sql(f"use {schema(settings.project)}")
    bounds = _bounds(spark, since)
    topics = [row["topic"] for row in _judged(spark, bounds).select("topic").distinct().collect()]
    ranges, gone = _ranges(Cluster(settings.kafka_properties), topics, since)
    spark.createDataFrame(ranges, RANGES).createOrReplaceTempView("verified_ranges")
    records = _records(spark, settings, ranges)
    records.createOrReplaceTempView("verified_records")
    try:
        findings = tuple(_finding(spark, promise, bounds) for promise in PROMISES)
    finally:
        for view in ("verified_ranges", "verified_records"):
            spark.catalog.dropTempView(view)
    return Verification(since, _judged(spark, bounds).count(), records.count(), len(topics) - len(gone), gone, findings)


def _session(settings: Settings) -> SparkSession:
    if missing := without_tables(settings):
        raise VerificationError(missing)
    spark = session_to_ask(settings)
    name = schema(settings.project)
    if not spark.catalog.tableExists(f"{name}.deliveries"):
        raise VerificationError(missing_tables(settings))
    if objection := unreadable_tables(settings, spark, name):
        raise VerificationError(objection)
    return spark


def _bounds(spark: SparkSession, since: datetime | None) -> dict[str, str]:
    """What the queries of the promises refer to, as SQL."""
    (last,) = spark.sql("select greatest((select max(batch) from events), (select max(batch) from publish_results)) as upto").collect()
    ticks = collected(spark.sql("select watermark, unrecorded_since, loop_time, kind from ticks order by batch desc limit 1"))
    first = 0
    if since is not None:
        # the row of a tick comes after what it did
        (row,) = spark.sql(f"select max(batch) as batch from ticks where recorded_at < {literal(since)}").collect()
        first = int(row["batch"] or 0) + 1
    (decided,) = spark.sql("select max(batch) as batch from deliveries").collect()
    # null in the row of an orderly end: everything sent before it has a result
    recorded_until = EPOCH if not ticks else ticks[0]["unrecorded_since"] or (ticks[0]["loop_time"] if ticks[0]["kind"] == "end" else EPOCH)
    return {
        "first": str(first),
        "upto": str(int(last["upto"] or 0)),
        "watermark": str(max(int(ticks[0]["watermark"]) if ticks else 0, int(decided["batch"] or 0))),
        "recorded_until": literal(recorded_until),
    }


def _judged(spark: SparkSession, bounds: Mapping[str, str]) -> DataFrame:
    """The results of what was delivered."""
    return spark.sql(
        "select * from publish_results where outcome = 'delivered' and batch >= {first} and batch <= {upto}".format_map(bounds)
    )


def _ranges(cluster: Cluster, topics: list[str], since: datetime | None) -> tuple[list[tuple[str, int, int, int]], tuple[str, ...]]:
    """The offsets to read, in pieces, and the topics that don't exist any more."""
    described = cluster.describe(topics)
    partitions = [Partition(topic.name, topic.id, number) for topic in described.values() for number in range(topic.partitions)]
    millis = 0 if since is None else max(0, (since - _MARGIN - EPOCH) // timedelta(milliseconds=1))
    pieces = [
        (partition.topic, partition.number, low, min(low + _RANGE, end))
        for partition, (begin, end) in cluster.since(partitions, millis).items()
        for low in range(begin, end, _RANGE)
    ]
    return pieces, tuple(sorted(set(topics) - described.keys()))


def _records(spark: SparkSession, settings: Settings, ranges: list[tuple[str, int, int, int]]) -> DataFrame:
    """What lies there, kept by Spark. Raises VerificationError if a part can't be read."""
    kafka, group = dict(settings.kafka_properties), settings.group

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        # a reader reads each partition once
        for batch in batches:
            for place in range(batch.num_rows):
                yield from find_sent([batch.slice(place, 1)], kafka, group, with_content=True)

    tasks = max(1, min(len(ranges), 4 * spark.sparkContext.defaultParallelism))
    found = spark.createDataFrame(ranges, RANGES).repartition(tasks).mapInArrow(read, from_arrow_schema(FOUND)).localCheckpoint()
    problems = found.where("problem is not null").orderBy("topic", "partition").limit(1).collect()
    if problems:
        raise VerificationError(f"{problems[0]['topic']}/{problems[0]['partition']} can't be read: {problems[0]['problem']}")
    return found.where("delivery_id is not null")


def _finding(spark: SparkSession, promise: Promise, bounds: Mapping[str, str]) -> Finding:
    query = promise.breaches.format_map(bounds)
    rows = spark.sql(f"select *, count(*) over () as broken from ({query}) order by subject limit {_NAMED}").collect()
    return Finding(promise, int(rows[0]["broken"]) if rows else 0, tuple((row["subject"], row["detail"]) for row in rows))
