"""Intake: from the sources' topics into the ledger `events`, each record exactly once.

The next position of a partition is what the ledger and `ticks` say, the higher; the offsets that are committed to Kafka are for people
and lag tools, and are never read back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from orchestration.cluster import Cluster, ClusterError, Partition, Topic
from orchestration.ledgers import Ledgers
from orchestration.positions import Gap, Range, share
from orchestration.seeds import Row, topic_matches
from orchestration.settings import Settings
from orchestration.spark import in_short
from publisher import RejectedPropertiesError
from publisher.clients import make_client

log = logging.getLogger(__name__)

# A topic that was never read: its records' size is not known yet, so the first step takes few.
_FIRST_BYTES_PER_ROW = 16_384
_DISCOVER_SECONDS = 5.0

# How long a partition is left alone that gave no answer: asking costs every tick a timeout.
_UNANSWERED_SECONDS = 30.0

COMMANDS = "@commands"
"""What the commands topic is called among the sources. The seeds' check allows no source this name."""

_COMMAND_ID = "^[0-9a-f-]{36}$"


@dataclass
class Intake:
    """Reads the sources.

    `positions`: the next offset by partition (`Partition.key`), and `source:<name>` for each source that was started.
    """

    spark: SparkSession
    settings: Settings
    cluster: Cluster
    ledgers: Ledgers
    sources: tuple[Row, ...]
    positions: dict[str, int]
    _partitions: dict[str, list[Partition]] = field(default_factory=dict)
    _discovered: float = -1e9
    _ends: dict[Partition, int] = field(default_factory=dict)
    _bytes_per_row: dict[str, float] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _shared: set[str] = field(default_factory=set)
    _unanswered: dict[Partition, float] = field(default_factory=dict)
    _committer: Consumer | None = None
    begun: int = 0
    """How many sources were begun from where their topics end: to be kept in `ticks` soon, or a start would begin them further on."""

    def available(self, now: float) -> list[Range]:
        """What can be read now: from each partition's position to its last stable offset. Asks Kafka once, topics more rarely.

        now: a monotonic time in seconds. A partition that gives no answer stops no other: see `unanswered`. Raises ClusterError when Kafka
        gives none at all.
        """
        self._unanswered = {partition: until for partition, until in self._unanswered.items() if until > now}
        if now - self._discovered >= _DISCOVER_SECONDS:
            self._discover(now)
            self._discovered = now
        partitions = [(source, partition) for source, found in self._partitions.items() for partition in found]
        asked = [partition for _, partition in partitions if partition.key in self.positions and partition not in self._unanswered]
        ends = self._ends = self.cluster.ends(asked)
        self._unanswered.update({partition: now + _UNANSWERED_SECONDS for partition in asked if partition not in ends})
        return [
            Range(source, partition, self.positions[partition.key], ends[partition])
            for source, partition in partitions
            if partition in ends and ends[partition] > self.positions[partition.key]
        ]

    @property
    def unanswered(self) -> list[str]:
        """Partitions that lately gave no answer, as `topic/number`: what lies there is not known."""
        return sorted(f"{partition.topic}/{partition.number}" for partition in self._unanswered)

    def lag(self) -> dict[str, int]:
        """Records that are not taken in yet, by source: up to the ends that `available` saw last. Markers of transactions count, too."""
        return {
            source: sum(max(0, self._ends.get(partition, 0) - self.positions.get(partition.key, 0)) for partition in found)
            for source, found in self._partitions.items()
        }

    def take(self, available: Iterable[Range], recorded_at: datetime) -> int:
        """Reads one step of what is available into `events`; returns the number of events, gaps included.

        A source that can't be read stops no other: it is named in the log and read again with the next step.
        """
        taken = self._bounded(list(available))
        gaps, taken = self._gaps_in(taken)
        if not taken and not gaps:
            return 0
        try:
            return self._append(taken, gaps, recorded_at)
        except _UnreadableError as error:
            sources = sorted({part.source for part in taken})
            if len(sources) == 1:
                log.warning("source %s can't be read, and is tried again: %s", sources[0], error)
                return 0
            events = 0
            for source in sources:
                try:
                    events += self._append(
                        [part for part in taken if part.source == source],
                        [gap for gap in gaps if gap.source == source],
                        recorded_at,
                    )
                except _UnreadableError as reason:
                    log.warning("source %s can't be read, and is tried again: %s", source, reason)
            return events

    def commit_offsets(self) -> None:
        """Commits the positions to the consumer group, for lag tools. Nothing depends on it, so a failure is only logged."""
        offsets = [
            TopicPartition(partition.topic, partition.number, self.positions[partition.key])
            for found in self._partitions.values()
            for partition in found
            if partition.key in self.positions
        ]
        if not offsets:
            return
        try:
            if self._committer is None:
                kafka = self.settings.kafka_properties
                self._committer = make_client(Consumer, {**kafka, "group.id": self.settings.group, "enable.auto.commit": "false"}, kafka)
            # the answer to the commit before: each is a copy of the list, and would wait there for ever
            self._committer.poll(0)
            self._committer.commit(offsets=offsets, asynchronous=True)
        except (KafkaException, RejectedPropertiesError) as error:
            log.debug("offsets were not committed: %s", error)

    def use(self, sources: tuple[Row, ...]) -> None:
        """Reads these sources from now on, and operators' commands."""
        topic = self.settings.commands_topic
        # first, so that a pattern of a source takes no command for a report
        self.sources = ((Row(0, {"source": COMMANDS, "topic": topic, "start": "earliest"}),) if topic else ()) + sources
        self._discovered = -1e9

    def close(self) -> None:
        """Closes the Kafka client that commits offsets."""
        if self._committer is not None:
            self._committer.close()
            self._committer = None

    def _discover(self, now: float) -> None:
        names = self.cluster.topic_names()
        wanted: dict[str, list[str]] = {row["source"]: [] for row in self.sources}
        for name in names:
            readers = [row["source"] for row in self.sources if topic_matches(name, row["topic"])]
            if len(readers) > 1 and name not in self._shared:
                self._shared.add(name)
                log.warning("topic %s matches the sources %s: it is read once, as the first of them", name, ", ".join(readers))
            if readers:
                wanted[readers[0]].append(name)
        self._partitions = {source: found for source, found in self._partitions.items() if source in wanted}
        topics = self.cluster.describe(name for found in wanted.values() for name in found)
        for row in self.sources:
            source = row["source"]
            found = [topics[name] for name in wanted[source] if name in topics]
            self._say_what_is_missing(row, found)
            self._partitions[source] = [Partition(topic.name, topic.id, number) for topic in found for number in range(topic.partitions)]
            self._start(row, self._partitions[source], now)

    def _say_what_is_missing(self, row: Row, found: list[Topic]) -> None:
        if row["source"] == COMMANDS:
            # who gives no commands needs no topic for them; `redrive check` says it
            return
        if not found and row["source"] not in self._missing:
            self._missing.add(row["source"])
            log.warning("source %s: no topic matches %s yet; it is read as soon as there is one", row["source"], row["topic"])
        elif found and row["source"] in self._missing:
            self._missing.discard(row["source"])
            log.warning("source %s: %s is there now", row["source"], ", ".join(topic.name for topic in found))

    def _start(self, row: Row, partitions: list[Partition], now: float) -> None:
        """Gives each partition without a position one: the first start of a source as it says, later ones at 0.

        A source starts as a whole: it waits for a partition that gives no answer, as one that is found later is taken for a new one.
        """
        new = [partition for partition in partitions if partition.key not in self.positions]
        started = f"source:{row['source']}"
        if started not in self.positions:
            if self._unanswered.keys() & set(new):
                return
            try:
                where = self.cluster.ends(new) if row["start"] == "latest" else self.cluster.starts(new)
            except ClusterError as error:
                log.debug("source %s: %s", row["source"], error)
                where = {}
            if len(where) < len(new):
                self._unanswered.update({partition: now + _UNANSWERED_SECONDS for partition in new if partition not in where})
                return
            self.positions.update({partition.key: offset for partition, offset in where.items()})
            self.begun += row["start"] == "latest"
        else:
            self.positions.update({partition.key: 0 for partition in new})
        # also where there is no topic yet: what is written before the loop finds it must not be taken for the past
        self.positions.setdefault(started, 1)

    def _bounded(self, available: list[Range]) -> list[Range]:
        heaviest = max((self._bytes_per_row.get(part.source, _FIRST_BYTES_PER_ROW) for part in available), default=1.0)
        return share(available, max(1, min(self.settings.intake_max_rows, int(self.settings.intake_max_bytes / heaviest))))

    def _gaps_in(self, taken: list[Range]) -> tuple[list[Gap], list[Range]]:
        """Moves ranges that retention has overtaken up to what is left, and says what is missing."""
        starts = self.cluster.starts(part.partition for part in taken)
        gaps: list[Gap] = []
        kept: list[Range] = []
        for part in taken:
            start = starts.get(part.partition)
            if start is None:
                continue
            if start > part.begin:
                gaps.append(Gap(part.source, part.partition, part.begin, start))
                log.warning(
                    "source %s: offsets %d to %d of %s/%d were removed by retention before they were read",
                    part.source, part.begin, start - 1, part.partition.topic, part.partition.number,
                )  # fmt: skip
            if part.end > start:
                kept.append(Range(part.source, part.partition, max(part.begin, start), part.end))
        return gaps, kept

    def _append(self, taken: list[Range], gaps: list[Gap], recorded_at: datetime) -> int:
        seen = Observation()
        frames = [self._records(taken).observe(seen, *_measures())] if taken else []
        if gaps:
            frames.append(self._gap_events(gaps))
        rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        try:
            self.ledgers.append("events", rows, recorded_at)
        except Exception as error:
            if _comes_from_kafka(error):
                raise _UnreadableError(in_short(error)) from error
            raise
        for part in taken:
            self.positions[part.partition.key] = part.end
        for gap in gaps:
            self.positions[gap.partition.key] = max(self.positions[gap.partition.key], gap.end)
        count = 0
        if taken:
            measured = seen.get
            count = int(measured["rows"])
            if count:
                for source in {part.source for part in taken}:
                    self._bytes_per_row[source] = max(64.0, float(measured["bytes"]) / count)
        return count + len(gaps)

    def _records(self, taken: list[Range]) -> DataFrame:
        def offsets(of: Mapping[Partition, int]) -> str:
            by_topic: dict[str, dict[str, int]] = {}
            for partition, offset in of.items():
                by_topic.setdefault(partition.topic, {})[str(partition.number)] = offset
            return json.dumps(by_topic)

        begin = {part.partition: part.begin for part in taken}
        topics = {part.partition.topic: (part.source, part.partition.topic_id) for part in taken}
        reader = self.spark.read.format("kafka")
        for name, value in self.settings.kafka_java_properties.items():
            reader = reader.option(f"kafka.{name}", value)
        records = (
            reader.option("kafka.isolation.level", "read_committed")
            # Spark asks for the ends of a partition on the connection that its own fetch holds up: half a second for each by default
            .option("kafka.fetch.max.wait.ms", "10")
            .option("assign", json.dumps({t: [p.number for p in begin if p.topic == t] for t in topics}))
            .option("startingOffsets", offsets(begin))
            .option("endingOffsets", offsets({part.partition: part.end for part in taken}))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .load()
        )
        source = F.create_map(*[F.lit(text) for topic, (name, _) in topics.items() for text in (topic, name)])
        topic_id = F.create_map(*[F.lit(text) for topic, (_, tid) in topics.items() for text in (topic, tid)])
        is_command = source[F.col("topic")] == COMMANDS
        key = F.col("key").cast("string")
        return records.select(
            topic_id[F.col("topic")].alias("topic_id"),
            "partition",
            "offset",
            F.lit(0).alias("index"),
            F.when(is_command, "command").otherwise("report").alias("kind"),
            source[F.col("topic")].alias("source"),
            "topic",
            "key",
            "value",
            "headers",
            # -1 is how a record says that it has no timestamp
            F.when(F.unix_millis("timestamp") >= 0, F.col("timestamp")).alias("record_timestamp"),
            (F.col("timestampType") == 1).alias("stamped_by_broker"),
            F.lit(None).cast("string").alias("detail"),
            F.when(is_command & key.rlike(_COMMAND_ID), key).alias("command"),
        )

    def _gap_events(self, gaps: list[Gap]) -> DataFrame:
        batch = self.ledgers.batch + 1
        rows = [
            ("loop", 0, batch, index, "gap", gap.source, gap.partition.topic,
             f"{gap.partition.topic}/{gap.partition.number} {gap.begin}-{gap.end - 1}")
            for index, gap in enumerate(gaps)
        ]  # fmt: skip
        schema = "topic_id string, partition int, offset bigint, index int, kind string, source string, topic string, detail string"
        return self.spark.createDataFrame(rows, schema).select(
            "*",
            F.lit(None).cast("binary").alias("key"),
            F.lit(None).cast("binary").alias("value"),
            F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
            F.lit(None).cast("timestamp").alias("record_timestamp"),
            F.lit(None).cast("boolean").alias("stamped_by_broker"),
            F.lit(None).cast("string").alias("command"),
        )


class _UnreadableError(Exception):
    """Spark could not read from Kafka."""


def _measures() -> list[F.Column]:  # type: ignore[name-defined]
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0)) + F.lit(512)
    return [F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(size), F.lit(0)).alias("bytes")]


def _comes_from_kafka(error: BaseException) -> bool:
    text = f"{error} {error.__cause__}"
    return "org.apache.kafka" in text or "spark.sql.kafka010" in text or "KAFKA" in text


__all__ = ["ClusterError", "Intake"]
