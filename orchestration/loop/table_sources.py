"""Takes in what pipelines append to Iceberg tables, snapshot by snapshot, as reports.

A table has a next offset, as a partition of a topic has. An offset is the sequence number of a snapshot times 2^31, plus the place of a row
among those that the snapshot appended, in the order of the files and of the rows in them. Several small snapshots are taken in as one,
under the sequence number of the last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from orchestration.kafka.cluster import Partition
from orchestration.logs import event
from orchestration.loop import event_rows, table_rows
from orchestration.loop.health import DECIDE, LEDGERS, Health, Reason, source
from orchestration.loop.positions import Gap, SourceOffsets, log_removed
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.rules.seeds import Row
from orchestration.rules.topic_patterns import table_of
from orchestration.tables.ledgers import AppendError, Ledgers
from orchestration.tables.source_tables import TableError
from orchestration.tables.spark import full_name, iceberg_table, in_short

log = logging.getLogger(__name__)

# How often a table is asked for new snapshots, in seconds: on an object store, each answer costs a request or two.
_LOOK_SECONDS = 1.0

# More places than one snapshot can have rows.
_PLACES = 2**31


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is not read yet. rows: how many it has appended; None: it has changed or removed rows, or only moved them."""

    id: int
    parent: int | None
    sequence: int
    operation: str
    rows: int | None


@dataclass(frozen=True)
class Part:
    """The rows [begin, end) of what the snapshots after `parent` up to `last` have appended. parent: None for the table's first."""

    parent: int | None
    last: Snapshot
    begin: int
    end: int

    @property
    def next_offset(self) -> int:
        """The next offset after it."""
        return self.last.sequence * _PLACES + self.end


def next_part(snapshots: Iterable[Snapshot], offset: int, limit: int) -> Part | None:
    """The next rows to read, at most so many, unless one of several small snapshots has more. None if there are none.

    snapshots: all from that of the offset on, the oldest first. A snapshot that was begun is read to its end first, then as many whole
    ones as the limit allows, and of a larger one a part. The first of the table is read alone: see `_read`.
    """
    taken: Part | None = None
    for one in snapshots:
        begin = offset - one.sequence * _PLACES if one.sequence == offset // _PLACES else 0
        left = max(0, (one.rows or 0) - begin)
        if begin and left:
            return Part(one.parent, one, begin, begin + min(left, limit))
        if begin or not left:
            continue
        if taken is None:
            taken = Part(one.parent, one, 0, min(left, limit))
            if left >= limit:
                break
        elif taken.parent is not None and taken.end + left <= limit:
            taken = Part(taken.parent, one, 0, taken.end + left)
        else:
            break
    return taken


def divided(sources: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The sources that are topics, and those that are tables."""
    rows = tuple(sources)
    tables = tuple(row for row in rows if table_of(row["topic"]) is not None)
    return tuple(row for row in rows if row not in tables), tables


@dataclass
class TableSources:
    """The sources that are tables."""

    spark: SparkSession
    ledgers: Ledgers
    rows: tuple[Row, ...]
    _looked: dict[str, float] = field(default_factory=dict)
    _skipped: set[int] = field(default_factory=set)

    def use(self, rows: Iterable[Row]) -> None:
        """Reads these from now on."""
        self.rows = tuple(rows)

    def is_time(self, name: str, now: float) -> bool:
        """Whether a source is to be asked again. now: a monotonic time in seconds."""
        if now - self._looked.get(name, -_LOOK_SECONDS) < _LOOK_SECONDS:
            return False
        self._looked[name] = now
        return True

    def look_again(self, name: str) -> None:
        """Asks the source again at once: it has more."""
        self._looked.pop(name, None)

    def take(self, row: Row, offsets: SourceOffsets, limit: int, now: datetime) -> tuple[int, SourceOffsets, bool]:
        """Appends rows that are not read yet to `events`, at most so many.

        Returns how many, the offsets after it, and whether there are more. Raises AppendError, TableError.
        """
        try:
            table_name = full_name(self.spark, table_of(row["topic"]) or "")
            table = iceberg_table(self.spark, table_name)
            table.refresh()
            partition = Partition(row["topic"], f"table:{table.uuid()}", 0)
            offsets = self._begun(row, partition, table, offsets)
            offset = offsets.of(partition)
            snapshots, is_whole = _snapshots(table, offset // _PLACES)
        except Exception as error:
            raise TableError(in_short(error)) from None
        self._say_what_is_skipped(row, snapshots)
        if not is_whole:
            offsets = self._gap(row, partition, offset, snapshots[0], offsets, now)
            offset = offsets.of(partition)
        part = next_part(snapshots, offset, limit)
        if part is None:
            return 0, offsets, False
        try:
            rows = table_rows.as_events(self._read(table_name, part), row, partition, part.last.sequence * _PLACES)
        except TableError:
            raise
        except Exception as error:
            raise TableError(in_short(error)) from None
        self.ledgers.append("events", rows, now)
        offsets = offsets.moved({partition: part.next_offset})
        return part.end - part.begin, offsets, next_part(snapshots, part.next_offset, 1) is not None

    def _begun(self, row: Row, partition: Partition, table: Any, offsets: SourceOffsets) -> SourceOffsets:
        """The offsets, with that of a table that was not read yet: its oldest snapshot, or with start `latest` what is appended next."""
        if offsets.has(partition):
            return offsets
        # a table that was dropped and made again is another one, which is read from its beginning
        is_new = row["source"] not in offsets.started
        current = table.currentSnapshot()
        skips = is_new and row["start"] == "latest" and current is not None
        return offsets.moved({partition: (current.sequenceNumber() + 1) * _PLACES if skips else 0}).begun(row["source"])

    def _gap(self, row: Row, partition: Partition, offset: int, oldest: Snapshot, offsets: SourceOffsets, now: datetime) -> SourceOffsets:
        """Records that snapshots have expired before they were read; reading goes on at the oldest that is left."""
        begin = oldest.sequence * _PLACES
        if offset:
            gap = Gap(row["source"], partition, offset, begin, goes_on_at=begin)
            log_removed(gap)
            self.ledgers.append("events", event_rows.gap_events(self.spark, [gap], self.ledgers.next_batch), now)
        return offsets.moved({partition: begin})

    def _say_what_is_skipped(self, row: Row, snapshots: Iterable[Snapshot]) -> None:
        for one in snapshots:
            if one.operation == "overwrite" and one.id not in self._skipped:
                self._skipped.add(one.id)
                event(log, logging.WARNING, "table_snapshot_skipped", source=row["source"], table=row["topic"], snapshot=one.id)

    def _read(self, table: str, part: Part) -> DataFrame:
        reader = self.spark.read.format("iceberg")
        if part.parent is None:
            # nothing was there before: what the snapshot appended is all that it has
            reader = reader.option("snapshot-id", part.last.id)
        else:
            reader = reader.option("start-snapshot-id", part.parent).option("end-snapshot-id", part.last.id)
        place = F.row_number().over(Window.orderBy("_file", "_pos")) - 1
        rows = reader.load(table).select("*", "_file", "_pos").withColumn(table_rows.PLACE, place).drop("_file", "_pos")
        return rows.where((F.col(table_rows.PLACE) >= part.begin) & (F.col(table_rows.PLACE) < part.end))


def _snapshots(table: Any, sequence: int) -> tuple[list[Snapshot], bool]:
    """The snapshots from a sequence number on, the oldest first; and whether none before them is missing."""
    found: list[Snapshot] = []
    one = table.currentSnapshot()
    while one is not None and one.sequenceNumber() >= sequence:
        parent, operation = one.parentId(), one.operation()
        rows = one.summary().get("added-records") if operation == "append" else None
        found.append(Snapshot(one.snapshotId(), parent, one.sequenceNumber(), operation, None if rows is None else int(rows)))
        one = None if parent is None else table.snapshot(parent)
    found.reverse()
    is_whole = not found or one is not None or found[0].parent is None or found[0].sequence <= sequence
    return found, is_whole


@dataclass
class TableIntake:
    """Takes in the rows of all sources that are tables. One that can't be read is left alone for growing pauses, and stops nothing else."""

    sources: TableSources
    health: Health
    most_rows: int
    record_sends: Callable[[], None] = lambda: None
    """As in IntakeStep."""
    _failing: set[str] = field(default_factory=set)

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Takes in a bounded number of rows of each."""
        report = StepReport(state)
        for name in self._failing - {row["source"] for row in self.sources.rows}:
            # it is no longer in the seeds, or reads a topic now
            self._failing.discard(name)
            report.recovered(source(name))
        if not self.sources.rows or not self.health.may(LEDGERS):
            return report.result()
        if DECIDE in self.health and state.window.undecided > self.most_rows:
            return report.result()
        began = time.monotonic()
        try:
            for row in self.sources.rows:
                self._take(report, row, now)
        except Exception as error:
            return report.result(error)
        if report.counts:
            report.took("intake", began)
        return report.result()

    def _take(self, report: StepReport, row: Row, now: datetime) -> None:
        name = row["source"]
        if not self.health.may(source(name)):
            report.also_unread |= frozenset(row["speaks_for"].split())
            return
        if not self.sources.is_time(name, time.monotonic()):
            return
        before = report.state.offsets
        try:
            self.record_sends()
            taken, offsets, has_more = self.sources.take(row, before, self.most_rows, now)
        except AppendError:
            raise
        except TableError as error:
            self._failing.add(name)
            report.failed(source(name), Reason(f"its rows wait: {error}"))
            report.also_unread |= frozenset(row["speaks_for"].split())
            return
        self._failing.discard(name)
        report.recovered(source(name))
        if offsets != before:
            report.change(offsets=offsets)
            # where a source begins is kept in `ticks`, even if it has no rows yet
            report.count("begun", int(name not in before.started))
        if taken:
            report.count("events", taken)
            report.change(window=report.state.window.awaiting(taken, now))
        if has_more:
            self.sources.look_again(name)
            report.has_more = True
            report.also_unread |= frozenset(row["speaks_for"].split())
