"""Proves redrive's promises over the live tables and topics, in Spark. May run beside the loop; it writes nothing.

What is judged is fixed first: results up to a batch. Then the topics are read, to where they end by then, so everything that these results
name must be there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from orchestration.clock import EPOCH, literal
from orchestration.kafka.cluster import Cluster, ClusterError, Partition
from orchestration.kafka.sent_records import MARGIN, RANGES, sent_in
from orchestration.operators.promises import PROMISES, Promise
from orchestration.outbox.direct_ids import direct_id_pattern
from orchestration.settings import Settings
from orchestration.tables.catalog import missing_tables, without_tables
from orchestration.tables.ledgers import LEDGERS
from orchestration.tables.migration import unreadable_tables
from orchestration.tables.retention import removed_before
from orchestration.tables.rows import collected
from orchestration.tables.spark import schema, session_to_ask

# How many breaches of a promise are named.
_NAMED = 20


# What is judged: how much was delivered to each topic. A topic to which something was decided may have records without a result.
_JUDGED = """
select topic, sum(results) as results
from (
    select topic, 1 as results from publish_results
    where outcome = 'delivered' and batch >= {first} and batch <= {upto}
    union all
    select distinct topic, 0 as results from deliveries
    where kind is not null and topic is not null and batch >= {first} and batch <= {upto}
) as judged
group by topic
"""


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
    """Proves all promises, for what was recorded since a moment; None: for everything that `retention_days` keeps.

    Raises VerificationError, also if Kafka gives no answer; SettingsError.
    """
    settings.require_brokers()
    spark = _session(settings)
    tables = schema(settings.project)
    spark.sql(f"use {tables}")
    bounds = _bounds(settings, spark, kept := removed_before(spark, tables), since)
    judged = {row["topic"]: int(row["results"]) for row in spark.sql(_JUDGED.format_map(bounds)).collect()}
    cluster = Cluster(settings.kafka_properties)
    try:
        for name in cluster.not_readable([name for name, results in judged.items() if not results]):
            del judged[name]
        ranges, gone = _ranges(cluster, judged, since)
        records = _records(spark, settings, ranges)
        kept_ranges = _kept_ranges(cluster, ranges)
    except ClusterError as error:
        # what can't be asked is no broken promise
        raise VerificationError(str(error)) from None
    records.createOrReplaceTempView("verified_records")
    spark.createDataFrame(kept_ranges, RANGES).createOrReplaceTempView("verified_ranges")
    try:
        findings = tuple(_finding(spark, promise, bounds) for promise in PROMISES)
        while kept != (now_kept := removed_before(spark, tables)):
            # maintenance has removed old rows meanwhile
            bounds = _bounds(settings, spark, kept := now_kept, since) | {
                "upto": bounds["upto"],
                "recorded_until": bounds["recorded_until"],
            }
            findings = tuple(_finding(spark, promise, bounds) for promise in PROMISES)
    finally:
        for view in ("verified_ranges", "verified_records"):
            spark.catalog.dropTempView(view)
    missing = tuple(name for name in gone if judged[name])
    return Verification(since, sum(judged.values()), records.count(), len(judged) - len(gone), missing, findings)


def _session(settings: Settings) -> SparkSession:
    if missing := without_tables(settings):
        raise VerificationError(missing)
    # it may read all that was ever sent
    spark = session_to_ask(settings, brief=False)
    name = schema(settings.project)
    if not spark.catalog.tableExists(f"{name}.deliveries"):
        raise VerificationError(missing_tables(settings))
    if objection := unreadable_tables(settings, spark, name):
        raise VerificationError(objection)
    return spark


def _bounds(settings: Settings, spark: SparkSession, kept: datetime, since: datetime | None) -> dict[str, str]:
    """What the queries of the promises refer to, as SQL. kept: what is older may be removed, and some of its rows before the others."""
    (last,) = spark.sql("select greatest((select max(batch) from events), (select max(batch) from publish_results)) as upto").collect()
    ticks = collected(
        spark.sql(
            """
            select
                watermark,
                -- null in the row of an orderly end, and of the start after it, as everything sent before has a result; in earlier versions
                coalesce(unrecorded_since, case when kind in ('start', 'end') then loop_time end) as recorded_until
            from ticks
            order by batch desc
            limit 1
            """
        )
    )
    # of all ledgers: from each of them, maintenance may have removed the last rows of then
    judged_from = literal(max(kept, since or kept))
    batches = " union all ".join(f"select batch from {ledger} where recorded_at < {judged_from}" for ledger in LEDGERS)
    (row,) = spark.sql(f"select max(batch) as batch from ({batches})").collect()
    first = 0 if row["batch"] is None else int(row["batch"]) + 1
    (decided,) = spark.sql("select max(batch) as batch from deliveries").collect()
    return {
        "first": str(first),
        "upto": str(int(last["upto"] or 0)),
        "watermark": str(max(int(ticks[0]["watermark"]) if ticks else 0, int(decided["batch"] or 0))),
        "direct_ids": direct_id_pattern(settings),
        "kept_since": literal(kept),
        "recorded_until": literal((ticks and ticks[0]["recorded_until"]) or EPOCH),
    }


def _ranges(cluster: Cluster, topics: Collection[str], since: datetime | None) -> tuple[dict[Partition, tuple[int, int]], tuple[str, ...]]:
    """The offsets to read, and the topics that don't exist any more."""
    described = cluster.describe(topics)
    millis = 0 if since is None else max(0, (since - MARGIN - EPOCH) // timedelta(milliseconds=1))
    ranges = cluster.since({partition: millis for topic in described.values() for partition in topic.all_partitions})
    return ranges, tuple(sorted(set(topics) - described.keys()))


def _kept_ranges(cluster: Cluster, ranges: Mapping[Partition, tuple[int, int]]) -> list[tuple[str, int, int, int]]:
    """The ranges (RANGES) in which every record must still lie that was there: without what retention has removed while it was read, and
    without topics that are compacted, or whose configuration can't be read.
    """
    configs = cluster.configs(sorted({partition.topic for partition in ranges}))
    whole = {name for name, config in configs.items() if "compact" not in (config.get("cleanup.policy") or "compact")}
    starts = cluster.starts(ranges)
    return [
        (partition.topic, partition.number, max(begin, starts.get(partition, begin)), end)
        for partition, (begin, end) in ranges.items()
        if partition.topic in whole
    ]


def _records(spark: SparkSession, settings: Settings, ranges: Mapping[Partition, tuple[int, int]]) -> DataFrame:
    """What lies there. Raises VerificationError if a part can't be read."""
    found = sent_in(spark, settings, ranges, with_content=True)
    problems = found.where("problem is not null").orderBy("topic", "partition").limit(1).collect()
    if problems:
        raise VerificationError(f"{problems[0]['topic']}/{problems[0]['partition']} can't be read: {problems[0]['problem']}")
    return found.where("delivery_id is not null")


def _finding(spark: SparkSession, promise: Promise, bounds: Mapping[str, str]) -> Finding:
    query = promise.breaches.format_map(bounds)
    rows = spark.sql(f"select *, count(*) over () as broken from ({query}) order by subject limit {_NAMED}").collect()
    return Finding(promise, int(rows[0]["broken"]) if rows else 0, tuple((row["subject"], row["detail"]) for row in rows))
