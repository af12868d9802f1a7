"""Intake: appends the records of the sources' topics to the ledger `events`, each exactly once.

The next offset of a partition is the higher one of those in the ledger and in `ticks`. The offsets that are committed to Kafka are for
people and lag tools, and are never read back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import Observation, SparkSession

from orchestration.kafka import clients
from orchestration.kafka.cluster import NO_ID, Cluster, Partition, Range
from orchestration.kafka.records import RECORDS, UnreadError, read_records
from orchestration.logs import event
from orchestration.loop import event_rows
from orchestration.loop.discovery import COMMANDS, Discovery
from orchestration.loop.packed_keys import with_unpacked_keys
from orchestration.loop.positions import Gap, SourceOffsets, cut_id, log_removed, share
from orchestration.loop.step_size import StepSize
from orchestration.rules.seeds import Row
from orchestration.settings import Settings
from orchestration.tables.ledgers import AppendError, Ledgers
from publisher import RejectedPropertiesError

log = logging.getLogger(__name__)

# How long a step reads one source record by record, if Spark can't read it, in seconds. Each source has this time, and `intake_max_bytes`.
_ONE_BY_ONE_SECONDS = 10.0


@dataclass
class Intake:
    """Reads the sources.

    offsets: how far the sources are read. The step that runs takes them from the state when it begins, and returns them in its result.
    """

    spark: SparkSession
    settings: Settings
    cluster: Cluster
    ledgers: Ledgers
    sources: tuple[Row, ...]
    offsets: SourceOffsets
    unreadable: dict[str, str] = field(default_factory=dict)
    """The sources that could not be read completely with the last try, and why."""
    _ends: dict[Partition, int] = field(default_factory=dict)
    _one_by_one: set[Partition] = field(default_factory=set)
    _failed: set[Partition] = field(default_factory=set)
    _committer: Consumer | None = None

    def __post_init__(self) -> None:
        self.discovery = Discovery(self.cluster, ())
        # a start takes in what has come before it loads the rules: with the commands topic left out, a source could read it
        self.use(self.sources)
        self._size = StepSize(self.settings.intake_max_rows, self.settings.intake_max_bytes)

    @property
    def begun(self) -> int:
        """How many sources with start `latest` have begun since the last row of `ticks`: without a row, a restart would skip records."""
        return self.discovery.begun

    def kept(self) -> None:
        """Called after a row of `ticks` has recorded where these sources begin."""
        self.discovery.begun = 0

    def available(self, now: float) -> list[Range]:
        """What can be read now: from each partition's next offset to its last stable offset. New topics are looked for less often.

        now: a monotonic time in seconds. A partition that gives no answer stops no other: see `unanswered`. Raises ClusterError when Kafka
        gives none at all.
        """
        self.offsets = self.discovery.look(now, self.offsets)
        asked = self.discovery.asked(self.offsets)
        ends = self._ends = self.cluster.ends(asked)
        self.discovery.leave_alone([partition for partition in asked if partition not in ends], now)
        return [
            Range(source, partition, self.offsets.of(partition), ends[partition])
            for source, found in self.discovery.partitions.items()
            for partition in found
            if partition in ends and ends[partition] > self.offsets.of(partition)
        ]

    @property
    def unanswered(self) -> list[str]:
        """Partitions that lately gave no answer, as `topic/number`: what lies there is not known."""
        return self.discovery.unanswered

    def lag(self) -> dict[str, int]:
        """Records that are not taken in yet, by source: up to the ends that `available` saw last. Markers of transactions count, too."""
        return {
            source: sum(max(0, self._ends.get(partition, 0) - self.offsets.of(partition)) for partition in found)
            for source, found in self.discovery.partitions.items()
        }

    def take(self, available: Iterable[Range], recorded_at: datetime) -> int:
        """Reads one step of what is available into `events`; returns the number of events, gaps included.

        A source that can't be read stops no other: see `unreadable`. The next step that includes it tries again.
        """
        ranges = list(available)
        gaps, taken = self._gaps_in(share(ranges, self._size.rows(part.source for part in ranges)))
        gaps += self._cuts()
        if not taken and not gaps:
            return 0
        self._size.begin()
        for part in taken:
            self.unreadable.pop(part.source, None)
        if not any(part.partition in self._one_by_one for part in taken):
            try:
                return self._append(taken, gaps, recorded_at)
            except _UnreadableError as error:
                event(log, logging.DEBUG, "batch_read_failed", reason=error)
        # source by source, so that one that can't be read stops no other
        events = 0
        for source in sorted({part.source for part in taken} | {gap.source for gap in gaps}):
            parts = [part for part in taken if part.source == source]
            events += self._take_one(parts, [gap for gap in gaps if gap.source == source], recorded_at)
        return events

    def _take_one(self, parts: list[Range], gaps: list[Gap], recorded_at: datetime) -> int:
        """Reads the parts of one source. Those that Spark can't read are read by another client, record by record."""
        whole = [part for part in parts if part.partition not in self._one_by_one]
        events = 0
        if whole or gaps:
            try:
                events += self._append(whole, gaps, recorded_at)
            except _UnreadableError as error:
                event(log, logging.INFO, "fallback_reader_used", source=whole[0].source, reason=error)
                self._one_by_one.update(part.partition for part in whole)
                if gaps:
                    events += self._append([], gaps, recorded_at)
        return events + self._take_one_by_one([part for part in parts if part.partition in self._one_by_one], recorded_at)

    def _take_one_by_one(self, parts: list[Range], recorded_at: datetime) -> int:
        """Reads parts of one source record by record, for a bounded time and up to a number of bytes: the rest waits for the next step."""
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
                # Spark may have failed because of the brokers' state at that time: the next step tries Spark again
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
            TopicPartition(partition.topic, partition.number, self.offsets.of(partition))
            for found in self.discovery.partitions.values()
            for partition in found
            if self.offsets.has(partition)
        ]
        if not offsets:
            return
        try:
            if self._committer is None:
                self._committer = clients.keeper(self.settings.kafka_properties, self.settings.group)
            # takes the answer to the previous commit: each answer holds a copy of the list, and without a poll they pile up
            self._committer.poll(0)
            self._committer.commit(offsets=offsets, asynchronous=True)
        except (KafkaException, RejectedPropertiesError) as error:
            event(log, logging.DEBUG, "offset_commit_failed", reason=error)

    def use(self, sources: tuple[Row, ...]) -> None:
        """Reads these sources from now on, and operators' commands."""
        topic = self.settings.commands_topic
        # the commands topic comes first: otherwise a source whose pattern matches it would read commands as reports
        self.sources = ((Row(0, {"source": COMMANDS, "topic": topic, "start": "earliest"}),) if topic else ()) + sources
        self.discovery.use(self.sources)

    def close(self) -> None:
        """Closes the Kafka client that commits offsets."""
        if self._committer is not None:
            self._committer.close()
            self._committer = None

    def _cuts(self) -> list[Gap]:
        """The gaps of partitions that end before their next offset: an unclean leader election, or a lost disk, has cut them short.

        New records there get offsets that were read before, when other records had them. So they are read under another topic id: with the
        old one, they would get the input ids of those other records. If Kafka has no topic ids, the topic may have been created again, so
        it is read from 0.
        """
        batch = self.ledgers.next_batch
        gaps = []
        for source, partition, end in self._behind():
            position = self.offsets.of(partition)
            goes_on_at = 0 if partition.topic_id.startswith(NO_ID) else end
            cut = replace(partition, topic_id=cut_id(partition.topic_id, batch))
            gaps.append(Gap(source, cut, end, position, goes_on_at))
            event(
                log, logging.ERROR, "partition_truncated",
                source=source, topic=partition.topic, partition=partition.number,
                end_offset=end, read_up_to=position, continues_at=goes_on_at,
            )  # fmt: skip
        return gaps

    def _behind(self) -> list[tuple[str, Partition, int]]:
        """The partitions that end before their next offset, each with its source and its end."""
        return [
            (source, partition, self._ends[partition])
            for source, found in self.discovery.partitions.items()
            for partition in found
            if partition in self._ends and self._ends[partition] < self.offsets.of(partition)
        ]

    @property
    def is_cut(self) -> bool:
        """Whether a partition ends before its next offset: then a step records the gap, even if there is nothing to read."""
        return bool(self._behind())

    def unread(self, available: Iterable[Range]) -> frozenset[str]:
        """The topics and patterns that a source speaks for, of all sources not read up to the ends that `available` saw.

        The commands topic doesn't count: commands report no failures.
        """
        left = {part.source for part in available if self.offsets.of(part.partition) < part.end}
        behind = left | self.discovery.silent | {source for source, _, _ in self._behind()}
        return frozenset(pattern for row in self.sources if row["source"] in behind - {COMMANDS} for pattern in row["speaks_for"].split())

    def _gaps_in(self, taken: list[Range]) -> tuple[list[Gap], list[Range]]:
        """Takes what retention has removed out of the ranges. Returns the gaps, and the ranges that are left."""
        starts = self.cluster.starts(part.partition for part in taken)
        gaps: list[Gap] = []
        kept: list[Range] = []
        for part in taken:
            start = starts.get(part.partition)
            if start is None:
                continue
            if start > part.begin:
                gaps.append(Gap(part.source, part.partition, part.begin, start, goes_on_at=start))
                log_removed(gaps[-1])
            if part.end > start:
                kept.append(Range(part.source, part.partition, max(part.begin, start), part.end))
        return gaps, kept

    def _append(self, taken: list[Range], gaps: list[Gap], recorded_at: datetime, read: list[tuple[Any, ...]] | None = None) -> int:
        """Appends records and gaps. read: the records as rows of RECORDS, if another client has read them; else Spark reads them."""
        seen = Observation()
        sources = sorted({part.source for part in taken})
        frames = []
        if taken and (read is None or read):
            records = event_rows.from_kafka(self.spark, self.settings, taken) if read is None else self.spark.createDataFrame(read, RECORDS)
            events = with_unpacked_keys(event_rows.as_events(records, taken), [row for row in self.sources if row["source"] in sources])
            frames.append(events.observe(seen, *event_rows.measures(sources)))
        if gaps:
            frames.append(event_rows.gap_events(self.spark, gaps, self.ledgers.next_batch))
        if frames:
            rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1], allowMissingColumns=True)
            try:
                self.ledgers.append("events", rows, recorded_at)
            except AppendError as error:
                if read is None and event_rows.is_of_kafka(error):
                    raise _UnreadableError(str(error)) from error
                raise
        self.offsets = self.offsets.moved({part.partition: part.end for part in taken})
        self.offsets = self.offsets.moved({gap.partition: max(self.offsets.of(gap.partition), gap.goes_on_at) for gap in gaps})
        if any(gap.goes_on_at < gap.end for gap in gaps):
            self.discovery.look_again()
        count = 0
        if taken and (read is None or read):
            measured = seen.get
            for place, source in enumerate(sources):
                count += int(measured[f"rows{place}"])
                self._size.measured(source, int(measured[f"rows{place}"]), int(measured[f"bytes{place}"]))
        return count + len(gaps)


class _UnreadableError(Exception):
    """Spark could not read from Kafka."""
