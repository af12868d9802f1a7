"""Intake: from the sources' topics into the ledger `events`, each record exactly once.

The next position of a partition is what the ledger and `ticks` say, the higher; the offsets that are committed to Kafka are for people
and lag tools, and are never read back.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from orchestration.kafka.cluster import NO_ID, Cluster, ClusterError, Partition, Topic
from orchestration.kafka.records import LAST_MILLIS, RECORDS, UnreadError, read_records
from orchestration.loop.positions import Gap, Range, cut_id, ids_in_force, share
from orchestration.rules.routing import topic_matches
from orchestration.rules.seeds import Row
from orchestration.settings import Settings
from orchestration.tables import synthetic_events
from orchestration.tables.ledgers import AppendError, Ledgers
from orchestration.tables.spark import FROM_KAFKA, java_errors
from publisher import RejectedPropertiesError, make_client

log = logging.getLogger(__name__)

# What a record and each of its headers weigh beside their bytes.
_ROW_BYTES = 512
_HEADER_BYTES = 48

# A topic that was never read: its records' size is not known yet, so the first step takes few.
_FIRST_BYTES_PER_ROW = 16_384
_DISCOVER_SECONDS = 5.0

# How long a step reads record by record what Spark can't read.
_ONE_BY_ONE_SECONDS = 10.0

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
    _one_by_one: set[Partition] = field(default_factory=set)
    _failed: set[Partition] = field(default_factory=set)
    _committer: Consumer | None = None
    unreadable: dict[str, str] = field(default_factory=dict)
    """The sources of which something could not be read when it was tried last, and why."""
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

        A source that can't be read stops no other: see `unreadable`. It is read again with the next step that has it.
        """
        taken = self._bounded(list(available))
        gaps, taken = self._gaps_in(taken)
        gaps += self._cuts()
        if not taken and not gaps:
            return 0
        for part in taken:
            self.unreadable.pop(part.source, None)
        if not any(part.partition in self._one_by_one for part in taken):
            try:
                return self._append(taken, gaps, recorded_at)
            except _UnreadableError as error:
                log.debug("a step can't be read as a whole: %s", error)
        # source by source: what one of them has stops no other
        events = 0
        for source in sorted({part.source for part in taken} | {gap.source for gap in gaps}):
            parts = [part for part in taken if part.source == source]
            events += self._take_one(parts, [gap for gap in gaps if gap.source == source], recorded_at)
        return events

    def _take_one(self, parts: list[Range], gaps: list[Gap], recorded_at: datetime) -> int:
        """Reads the parts of one source: those that Spark can't read through another client, record by record."""
        whole = [part for part in parts if part.partition not in self._one_by_one]
        events = 0
        if whole or gaps:
            try:
                events += self._append(whole, gaps, recorded_at)
            except _UnreadableError as error:
                log.info("source %s: Spark can't read it, and another client tries: %s", whole[0].source, error)
                self._one_by_one.update(part.partition for part in whole)
                if gaps:
                    events += self._append([], gaps, recorded_at)
        return events + self._take_one_by_one([part for part in parts if part.partition in self._one_by_one], recorded_at)

    def _take_one_by_one(self, parts: list[Range], recorded_at: datetime) -> int:
        """Reads parts of one source record by record, in one step that is bounded: the rest waits for the next one."""
        deadline = time.monotonic() + _ONE_BY_ONE_SECONDS
        left = self.settings.intake_max_bytes
        taken: list[Range] = []
        rows: list[tuple[Any, ...]] = []
        # those that could not be read the last time come last, as each may cost a timeout
        for part in sorted(parts, key=lambda part: part.partition in self._failed):
            if left <= 0 or time.monotonic() >= deadline:
                break
            self._failed.discard(part.partition)
            try:
                read = read_records(self.settings.kafka_properties, self.settings.group, part, left)
            except UnreadError as error:
                where = f"{part.partition.topic}/{part.partition.number}"
                self.unreadable[part.source] = f"offsets {part.begin} to {part.end - 1} of {where} can't be read: {error}"
                self._failed.add(part.partition)
                # what Spark could not read may have been the brokers' state of that moment: it is asked again
                self._one_by_one.discard(part.partition)
                continue
            if not read.has_odd_ones:
                self._one_by_one.discard(part.partition)
            left -= read.size
            taken.append(replace(part, end=read.end))
            rows += read.rows
        return self._append(taken, [], recorded_at, rows) if taken else 0

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
        cut = ids_in_force(self.positions)
        for row in self.sources:
            source = row["source"]
            found = [topics[name] for name in wanted[source] if name in topics]
            self._say_what_is_missing(row, found)
            self._partitions[source] = [
                Partition(topic.name, cut.get(f"{topic.id}/{number}", topic.id), number)
                for topic in found
                for number in range(topic.partitions)
            ]
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

    def _cuts(self) -> list[Gap]:
        """What is away of partitions that end before their position: an unclean election of a leader, or a disk, has cut them short.

        What is written there from now on is something else than what was read under these offsets. So it is read under another id: it
        would have the names of other inputs. Where Kafka has no ids of topics, the topic was created again: all of it is new.
        """
        batch = self.ledgers.next_batch
        gaps = []
        for source, partition, end in self._behind():
            position = self.positions[partition.key]
            goes_on_at = 0 if partition.topic_id.startswith(NO_ID) else end
            cut = replace(partition, topic_id=cut_id(partition.topic_id, batch))
            gaps.append(Gap(source, cut, end, position, goes_on_at))
            log.error(
                "source %s: %s/%d ends at offset %d, and was read up to %d: what lay there is gone, and reading goes on at %d",
                source, partition.topic, partition.number, end, position, goes_on_at,
            )  # fmt: skip
        return gaps

    def _behind(self) -> list[tuple[str, Partition, int]]:
        """The partitions that end before their position, each with its source and its end."""
        return [
            (source, partition, self._ends[partition])
            for source, found in self._partitions.items()
            for partition in found
            if partition in self._ends and self._ends[partition] < self.positions.get(partition.key, 0)
        ]

    @property
    def is_cut(self) -> bool:
        """Whether a partition ends before its position: then a step tells of it, though there may be nothing to read."""
        return bool(self._behind())

    def unread(self, available: Iterable[Range]) -> frozenset[str]:
        """What the sources speak for of which not everything has been read that was there when `available` looked.

        Of operators' commands it makes no difference: they report nothing.
        """
        left = {part.source for part in available if self.positions[part.partition.key] < part.end}
        silent = {source for source, found in self._partitions.items() if not self._unanswered.keys().isdisjoint(found)}
        behind = left | silent | {source for source, _, _ in self._behind()}
        return frozenset(pattern for row in self.sources if row["source"] in behind - {COMMANDS} for pattern in row["speaks_for"].split())

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
                gaps.append(Gap(part.source, part.partition, part.begin, start, goes_on_at=start))
                log.warning(
                    "source %s: offsets %d to %d of %s/%d were removed by retention before they were read",
                    part.source, part.begin, start - 1, part.partition.topic, part.partition.number,
                )  # fmt: skip
            if part.end > start:
                kept.append(Range(part.source, part.partition, max(part.begin, start), part.end))
        return gaps, kept

    def _append(self, taken: list[Range], gaps: list[Gap], recorded_at: datetime, read: list[tuple[Any, ...]] | None = None) -> int:
        """Appends records and gaps; read: the records in rows of RECORDS, where Spark can't read them itself."""
        seen = Observation()
        sources = sorted({part.source for part in taken})
        frames = []
        if taken and (read is None or read):
            records = self._from_kafka(taken) if read is None else self.spark.createDataFrame(read, RECORDS)
            frames.append(self._as_events(records, taken).observe(seen, *_measures(sources)))
        if gaps:
            frames.append(self._gap_events(gaps))
        if frames:
            rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
            try:
                self.ledgers.append("events", rows, recorded_at)
            except AppendError as error:
                if read is None and _is_of_kafka(error):
                    raise _UnreadableError(str(error)) from error
                raise
        for part in taken:
            self.positions[part.partition.key] = part.end
        for gap in gaps:
            self.positions[gap.partition.key] = max(self.positions.get(gap.partition.key, 0), gap.goes_on_at)
        if any(gap.goes_on_at < gap.end for gap in gaps):
            self._discovered = -1e9
        count = 0
        if taken and (read is None or read):
            measured = seen.get
            for place, source in enumerate(sources):
                rows_of = int(measured[f"rows{place}"])
                count += rows_of
                if rows_of:
                    self._bytes_per_row[source] = max(64.0, float(measured[f"bytes{place}"]) / rows_of)
        return count + len(gaps)

    def _from_kafka(self, taken: list[Range]) -> DataFrame:
        def offsets(of: Mapping[Partition, int]) -> str:
            by_topic: dict[str, dict[str, int]] = {}
            for partition, offset in of.items():
                by_topic.setdefault(partition.topic, {})[str(partition.number)] = offset
            return json.dumps(by_topic)

        begin = {part.partition: part.begin for part in taken}
        topics = {part.partition.topic for part in taken}
        reader = self.spark.read.format("kafka")
        for name, value in self.settings.kafka_java_properties.items():
            reader = reader.option(f"kafka.{name}", value)
        return (
            reader.option("kafka.isolation.level", "read_committed")
            # Spark asks for the ends of a partition on the connection that its own fetch holds up: half a second for each by default
            .option("kafka.fetch.max.wait.ms", "10")
            .option("assign", json.dumps({topic: [where.number for where in begin if where.topic == topic] for topic in sorted(topics)}))
            .option("startingOffsets", offsets(begin))
            .option("endingOffsets", offsets({part.partition: part.end for part in taken}))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .load()
            .withColumns({"millis": F.unix_millis("timestamp"), "problem": F.lit(None).cast("string")})
        )

    def _as_events(self, records: DataFrame, taken: list[Range]) -> DataFrame:
        topics = {part.partition.topic: part.source for part in taken}
        source = F.create_map(*[F.lit(text) for topic, name in topics.items() for text in (topic, name)])
        ids = {part.partition.topic: part.partition.topic_id for part in taken}
        topic_id = F.create_map(*[F.lit(text) for topic, tid in ids.items() for text in (topic, tid)])[F.col("topic")]
        for part in taken:
            if part.partition.topic_id != ids[part.partition.topic]:
                # one that was cut short has another id than the others of its topic
                is_there = (F.col("topic") == part.partition.topic) & (F.col("partition") == part.partition.number)
                topic_id = F.when(is_there, part.partition.topic_id).otherwise(topic_id)
        is_command = source[F.col("topic")] == COMMANDS
        key = F.col("key").cast("string")
        # -1 is how a record says that it has no timestamp; what no clock can tell is none either, and is said
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

    def _gap_events(self, gaps: list[Gap]) -> DataFrame:
        batch = self.ledgers.next_batch
        rows = [
            (*synthetic_events.gap(batch, place), "gap", gap.source, gap.partition.topic,
             f"{gap.partition.topic}/{gap.partition.number} {gap.begin}-{gap.end - 1}",
             gap.partition.key.encode(), str(gap.goes_on_at).encode())
            for place, gap in enumerate(gaps)
        ]  # fmt: skip
        schema = f"{synthetic_events.COORDINATES}, kind string, source string, topic string, detail string, key binary, value binary"
        return self.spark.createDataFrame(rows, schema).select(
            "*",
            F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
            F.lit(None).cast("timestamp").alias("record_timestamp"),
            F.lit(None).cast("boolean").alias("stamped_by_broker"),
            F.lit(None).cast("string").alias("command"),
        )


class _UnreadableError(Exception):
    """Spark could not read from Kafka."""


def _measures(sources: list[str]) -> list[Column]:
    """What is counted while records are taken in: of each source how many there are, and what they weigh in memory."""
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


def _is_of_kafka(error: AppendError) -> bool:
    """Whether it was reading that failed, not writing."""
    return any(one.is_raised_in(FROM_KAFKA, "org.apache.kafka.") for one in java_errors(error.__cause__ or error))


__all__ = ["ClusterError", "Intake"]
