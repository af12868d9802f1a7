"""Takes in what pipelines append to Iceberg tables, snapshot by snapshot, as reports.

A table has a next offset, as a partition of a topic has. An offset is the sequence number of a snapshot times 2^31, plus the place of a row
among those that the snapshot appended, in the order of the files and of the rows in them. Several small snapshots are taken in as one,
under the sequence number of the last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
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
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import free
from orchestration.tables.source_tables import TableError, objections_to_format
from orchestration.tables.spark import full_name, iceberg_table, in_short, is_gone

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
    """The next rows to read, at most so many; None if there are none.

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
class Taken:
    """What one look at a table has done. rows: how many events it has appended. has_more: whether there are more."""

    offsets: SourceOffsets
    rows: int = 0
    has_more: bool = False


@dataclass
class TableSources:
    """The sources that are tables. record_sends: as in IntakeStep."""

    spark: SparkSession
    ledgers: Ledgers
    rows: tuple[Row, ...]
    record_sends: Callable[[], None] = lambda: None
    _looked: dict[str, float] = field(default_factory=dict)
    _skipped: set[int] = field(default_factory=set)
    _readers: dict[str, str] = field(default_factory=dict)

    def use(self, rows: Iterable[Row]) -> None:
        """Reads these from now on."""
        self.rows = tuple(rows)
        self._readers.clear()

    def is_time(self, name: str, now: float) -> bool:
        """Whether a source is to be asked again. now: a monotonic time in seconds."""
        if now - self._looked.get(name, -_LOOK_SECONDS) < _LOOK_SECONDS:
            return False
        self._looked[name] = now
        return True

    def look_again(self, name: str) -> None:
        """Asks the source again at once: it has more."""
        self._looked.pop(name, None)

    def take(self, row: Row, offsets: SourceOffsets, limit: int, now: datetime) -> Taken:
        """Appends rows that are not read yet to `events`, at most so many. Raises AppendError, TableError."""
        with _as_table_error():
            name = full_name(self.spark, table_of(row["topic"]) or "")
            table = iceberg_table(self.spark, name)
            table.refresh()
            self._must_be_readable(table, row)
            partition = Partition(row["topic"], f"table:{table.uuid()}", 0)
            offsets = self._begun(row, partition, table, offsets)
            offset = offsets.of(partition)
            snapshots, is_whole = _snapshots(table, offset // _PLACES)
        self._say_what_is_skipped(row, snapshots)
        if not is_whole:
            oldest = snapshots[0].sequence * _PLACES
            gap = Gap(row["source"], partition, offset, oldest, goes_on_at=oldest)
            log_removed(gap)
            self.ledgers.append("events", event_rows.gap_events(self.spark, [gap], self.ledgers.next_batch), now)
            return Taken(offsets.moved({partition: oldest}), 1, has_more=True)
        # after all of it: so that what was read, and what appended nothing, may expire without a gap
        after_all = (snapshots[-1].sequence + 1) * _PLACES if snapshots else offset
        part = next_part(snapshots, offset, limit)
        if part is None:
            return Taken(offsets.moved({partition: after_all}))
        with _as_table_error():
            # read before the append: a file that can't be read is a trouble of this source, and not of the ledgers
            rows = table_rows.as_events(self._read(name, table, part), row, partition, part.last.sequence * _PLACES).localCheckpoint()
        try:
            self.record_sends()
            self.ledgers.append("events", rows, now)
        finally:
            free(rows)
        left = [one for one in snapshots if one.sequence >= part.last.sequence]
        has_more = next_part(left, part.next_offset, 1) is not None
        return Taken(offsets.moved({partition: part.next_offset if has_more else after_all}), part.end - part.begin, has_more)

    def _must_be_readable(self, table: Any, row: Row) -> None:
        if wrong := objections_to_format(self.spark, table):
            raise TableError("; ".join(wrong))
        reader = self._readers.setdefault(str(table.uuid()), row["source"])
        if reader != row["source"]:
            raise TableError(f"the source {reader} reads this table")

    def _begun(self, row: Row, partition: Partition, table: Any, offsets: SourceOffsets) -> SourceOffsets:
        """The offsets, with that of a table that was not read yet: its oldest snapshot, or with start `latest` what is appended next."""
        if offsets.has(partition):
            return offsets
        # not the source's name alone: it may have read a topic before
        started = f"{row['source']}/{row['topic']}"
        current = table.currentSnapshot()
        if current is None:
            begin = 1
        elif row["start"] == "latest" and started not in offsets.started:
            begin = current.sequenceNumber() + 1
        else:
            # also of a table that was dropped and made again, which is another one
            begin = _snapshots(table, 0)[0][0].sequence
        return offsets.moved({partition: begin * _PLACES}).begun(started)

    def _say_what_is_skipped(self, row: Row, snapshots: Iterable[Snapshot]) -> None:
        for one in snapshots:
            if one.operation == "overwrite" and one.id not in self._skipped:
                self._skipped.add(one.id)
                event(log, logging.WARNING, "table_snapshot_skipped", source=row["source"], table=row["topic"], snapshot=one.id)

    def _read(self, name: str, table: Any, part: Part) -> DataFrame:
        reader = self.spark.read.format("iceberg")
        if part.parent is None:
            # nothing was there before: what the snapshot appended is all that it has; but it has the names of columns of that time
            columns = _columns_of(table, table.snapshot(part.last.id))
            rows = reader.option("snapshot-id", part.last.id).load(name).select(*columns, "_file", "_pos")
        else:
            reader = reader.option("start-snapshot-id", part.parent).option("end-snapshot-id", part.last.id)
            rows = reader.load(name).select("*", "_file", "_pos")
        place = F.row_number().over(Window.orderBy("_file", "_pos")) - 1
        rows = rows.withColumn(table_rows.PLACE, place).drop("_file", "_pos")
        return rows.where((F.col(table_rows.PLACE) >= part.begin) & (F.col(table_rows.PLACE) < part.end))


@contextmanager
def _as_table_error() -> Iterator[None]:
    """Raises every error of Spark's or Iceberg's as TableError, unless Spark itself is gone."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        if is_gone(error):
            raise
        raise TableError(in_short(error)) from error


def _columns_of(table: Any, snapshot: Any) -> list[Column]:
    """The columns of a snapshot under the names of today; null where they were added later."""
    before = table.schemas().get(snapshot.schemaId())
    found = []
    for column in table.schema().columns():
        name = before.findColumnName(column.fieldId())
        found.append((F.lit(None) if name is None else F.col(f"`{name}`")).alias(column.name()))
    return found


def _snapshots(table: Any, sequence: int) -> tuple[list[Snapshot], bool]:
    """The snapshots from a sequence number on, the oldest first; and whether none before them is missing. Raises TableError."""
    found: list[Snapshot] = []
    one = table.currentSnapshot()
    while one is not None and one.sequenceNumber() >= sequence:
        parent, operation, summary = one.parentId(), one.operation(), one.summary()
        rows = summary.get("added-records") if operation == "append" else None
        if operation == "append" and rows is None and summary.get("added-data-files") is not None:
            raise TableError(f"the snapshot {one.snapshotId()} doesn't say how many rows it has appended")
        found.append(Snapshot(one.snapshotId(), parent, one.sequenceNumber(), operation, None if rows is None else int(rows)))
        one = None if parent is None else table.snapshot(parent)
    found.reverse()
    if len(found) > 1 and found[1].sequence == 0:
        # they have no order that offsets could follow
        raise TableError("it has snapshots of format version 1: expire them, or begin with start = latest")
    return found, not found or one is not None or found[0].sequence <= sequence


@dataclass
class TableIntake:
    """Takes in the rows of all sources that are tables. One that can't be read is left alone for growing pauses, and stops nothing else."""

    sources: TableSources
    health: Health
    most_rows: int
    _failing: set[str] = field(default_factory=set)
    _moved: bool = False

    def kept(self) -> None:
        """Called after a row of `ticks` has recorded the offsets."""
        self._moved = False

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
        # an offset that has moved without rows is worth a row in `ticks`, too: without it, a start would not know where a source begins
        if self._moved and not report.state.counts.get("tables_moved"):
            report.count("tables_moved", 1)
        return report.result()

    def _take(self, report: StepReport, row: Row, now: datetime) -> None:
        name, speaks_for = row["source"], frozenset(row["speaks_for"].split())
        if not self.health.may(source(name)) or not self.sources.is_time(name, time.monotonic()):
            # what lies there is not known
            report.also_unread |= speaks_for
            return
        before = report.state.offsets
        try:
            taken = self.sources.take(row, before, self.most_rows, now)
        except TableError as error:
            self._failing.add(name)
            report.failed(source(name), Reason(f"its rows wait: {error}"))
            report.also_unread |= speaks_for
            return
        self._failing.discard(name)
        report.recovered(source(name))
        if taken.offsets != before:
            report.change(offsets=taken.offsets)
            self._moved = True
        if taken.rows:
            report.count("events", taken.rows)
            report.change(window=report.state.window.awaiting(taken.rows, now))
        if taken.has_more:
            self.sources.look_again(name)
            report.has_more = True
            report.also_unread |= speaks_for
