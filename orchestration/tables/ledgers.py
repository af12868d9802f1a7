"""Appends to the ledgers, strictly one after another. Only the loop in charge may append.

Each append has a batch number of its own, from one sequence for all ledgers.

An append is refused if another process has written to the ledger since this loop did. For Iceberg it is an overwrite of the rows after this
loop's last batch (there are none), validated from this loop's last snapshot: rows of another loop are a conflict.

The outcome of an append that failed may be in doubt: it may still be committed, seconds later. Its number is used up, and nothing is
appended to the other ledgers until another append to the same ledger has been committed; after that, the late commit is refused as a
conflict. Without this rule, the late rows would have a batch that the decide step has passed already, and would never be decided.

The number of an append that failed is never used again: `append_once` looks for the numbers of its earlier attempts, and must not find
another append under one of them.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from orchestration.clock import literal
from orchestration.tables.arrow_files import ArrowFiles
from orchestration.tables.spark import FROM_KAFKA, iceberg_table, in_short, is_commit_refused, java_errors

LEDGERS = ("ticks", "events", "publish_results")

APPEND = "redrive.append"
"""The property of a snapshot's summary that identifies the append of a loop which made it."""


# An error raised in these classes comes before Spark commits: from a job, or from the planning of a read from Kafka.
_BEFORE_A_COMMIT = ("org.apache.spark.scheduler.DAGScheduler", FROM_KAFKA)


class AppendError(Exception):
    """An append to a ledger failed. What is in the ledger now must be read before anything else is done."""


class TakenOverError(AppendError):
    """An append was refused because a loop with a higher generation is in charge."""

    def __init__(self, by: int, message: str) -> None:
        super().__init__(message)
        self.by = by


# Of how many appends to a ledger the batches are known.
_BATCHES_KNOWN = 1_000


@dataclass(frozen=True)
class _End:
    """The known end of a ledger: its last batch, and a snapshot that has it (None: the ledger is empty)."""

    snapshot: int | None
    batch: int


class Ledgers:
    """The ledgers of one installation, written by one loop.

    `batch` is the number of the last append, counted over all ledgers; each append takes the next and is committed before the next
    begins, so that whoever reads up to a batch sees all of it. The number of an append that failed is used up.
    """

    def __init__(self, spark: SparkSession, schema: str, generation: int = 0) -> None:
        self._spark = spark
        self._schema = schema
        self._ends: dict[str, _End] = {}
        self._batches: dict[str, list[int]] = {}
        """By ledger, a batch and all that come after it."""
        self._in_doubt: dict[str, int] = {}
        self.generation = generation
        self.batch = 0
        self.lock = threading.RLock()
        """Held from the choice of a batch number until its append is committed: the timed lane appends results beside the loop's steps."""

    def name(self, ledger: str) -> str:
        """The ledger's table as SQL names it."""
        return f"{self._schema}.{ledger}"

    @property
    def next_batch(self) -> int:
        """The number of the next append."""
        return self.batch + 1

    @property
    def certain(self) -> int:
        """The last batch that is final: no append in doubt can still commit rows at or below it."""
        # without the lock, for which a step would wait as long as an append takes. Safe, as a number is in doubt before it counts as used
        return min(self._in_doubt.values(), default=self.batch + 1) - 1

    @property
    def in_doubt(self) -> list[str]:
        """The ledgers whose last append may still be committed. Only these accept an append, and if it succeeds, the doubt is over."""
        return list(self._in_doubt)

    def read_end(self) -> int:
        """Reads the last batch from the tables: at a start, and after an append that failed. Iceberg answers from metadata.

        What is there now counts as known: only what others append from now on is a conflict. Raises TakenOverError if a newer loop is in
        charge: then nothing counts as known.
        """
        with self.lock:
            ends = {ledger: self._end_of_table(ledger) for ledger in LEDGERS}
            # after the ends were read: the rows of a newer loop would be no conflict any more, and this loop would append behind them
            if self.generation and (by := self.superseded_by()) is not None:
                raise TakenOverError(by, f"generation {by} has taken over from generation {self.generation}")
            for ledger, end in ends.items():
                self._ends[ledger], self._batches[ledger] = end, [end.batch]
                if end.batch >= self._in_doubt.get(ledger, end.batch + 1):
                    # the append in doubt was committed; earlier ones can't be committed any more
                    del self._in_doubt[ledger]
            self.batch = max(self.batch, *(end.batch for end in self._ends.values()))
            return self.batch

    def end_of(self, ledger: str) -> int:
        """The last batch of a ledger, as far as it was read, or appended here; 0: none."""
        return self._ends[ledger].batch

    def batches_after(self, ledger: str, batch: int) -> list[int] | None:
        """The batches of a ledger that come after one; None: it isn't known of all."""
        known = self._batches[ledger]
        return None if batch < known[0] else [one for one in known if one > batch]

    def superseded_by(self) -> int | None:
        """The generation that has taken over from this one, if any."""
        newest = self.newest_generation()
        return newest if newest > self.generation else None

    def newest_generation(self) -> int:
        """The generation of the loop that started last; 0 where none has."""
        row = self._spark.sql(f"select max(generation) as generation from {self.name('ticks')}").collect()[0]
        return int(row["generation"] or 0)

    def has_ended(self, generation: int) -> bool:
        """Whether the loop of a generation has written its last row: then all its rows are in the ledgers, and no more will follow."""
        found = self._spark.sql(f"select 1 from {self.name('ticks')} where generation = {generation:d} and kind = 'end' limit 1")
        return bool(found.collect())

    def has(self, ledger: str, batch: int) -> bool:
        """Whether this loop's append of a batch is in the ledger."""
        found = self._spark.sql(f"select 1 from {self.name(ledger)} where batch = {batch} and generation = {self.generation} limit 1")
        return bool(found.collect())

    def append(self, ledger: str, rows: DataFrame | pa.Table, recorded_at: datetime) -> int:
        """Appends rows and returns their batch. Columns that the rows don't have are null; batch, generation and recorded_at are added.

        A table of Arrow's is written without a job of Spark's.

        Callers count first: an append of no rows would also be a commit. Raises AppendError, after which the caller must read the end
        again; TakenOverError, after which it must end.
        """
        with self.lock:
            return self._append(ledger, rows, recorded_at)

    def append_once(self, ledger: str, rows: DataFrame | pa.Table, recorded_at: datetime, tried: list[int]) -> None:
        """Appends rows, unless an earlier attempt was committed although its answer was lost. tried: the batches of the attempts so far.

        Raises what `append` raises; give the same list with the next attempt.
        """
        with self.lock:
            if not any(self.has(ledger, batch) for batch in tried):
                tried.append(self.next_batch)
                self.append(ledger, rows, recorded_at)

    def _append(self, ledger: str, rows: DataFrame | pa.Table, recorded_at: datetime) -> int:
        batch = self.next_batch
        self._refuse_beside_a_doubt(ledger, batch)
        end = self._ends[ledger]
        committing = False
        token = f"{self.generation}/{batch}/{uuid.uuid4()}"
        try:
            if isinstance(rows, pa.Table):
                commit = self._commit_of_arrow(ledger, self._completed_in_arrow(rows, batch, recorded_at), token)
            else:
                commit = self._commit_of_spark(ledger, self._completed(ledger, rows, batch, recorded_at), token)
            committing = True
            commit()
        except Exception as error:
            if committing and not _is_refused(error):
                # keeps the first of several: until one of them is in the ledger, each may still be committed
                self._in_doubt.setdefault(ledger, batch)
            self.batch = batch
            self._refuse_if_taken_over(ledger, batch, error)
            raise AppendError(f"batch {batch} could not be appended to {ledger}: {in_short(error)}") from error
        # committed: whatever happens from here on, no other append may take its number
        self._ends[ledger] = _End(end.snapshot, batch)
        self._batches[ledger] = [*self._batches[ledger][-_BATCHES_KNOWN:], batch]
        self._in_doubt.pop(ledger, None)
        self.batch = batch
        with contextlib.suppress(Exception):  # the snapshot before works, too: an older one only makes validation slower
            self._ends[ledger] = _End(self._snapshot_of(ledger, token), batch)
        return batch

    def _commit_of_spark(self, ledger: str, rows: DataFrame, token: str) -> Callable[[], None]:
        """Writes rows and commits them when it is called."""
        end = self._ends[ledger]
        writer = rows.writeTo(self.name(ledger)).option("isolation-level", "serializable").option(f"snapshot-property.{APPEND}", token)
        if end.snapshot is not None:
            writer = writer.option("validate-from-snapshot-id", str(end.snapshot))
        return lambda: writer.overwrite(F.expr(f"batch > {end.batch}L"))

    def _commit_of_arrow(self, ledger: str, rows: pa.Table, token: str) -> Callable[[], None]:
        """Writes rows, and commits them as Spark does when it is called. Maintenance removes files that were never committed."""
        end, table = self._ends[ledger], self._table(ledger)
        greater = self._spark._jvm.org.apache.iceberg.expressions.Expressions.greaterThan  # type: ignore[union-attr]
        update = table.newOverwrite().overwriteByRowFilter(greater("batch", end.batch)).set(APPEND, token)
        if end.snapshot is not None:
            update = update.validateFromSnapshot(end.snapshot)
        update = update.validateNoConflictingDeletes().validateNoConflictingData()
        for file in ArrowFiles(self._spark, table).written(rows):
            update = update.addFile(file)
        return lambda: update.commit()

    def _completed_in_arrow(self, rows: pa.Table, batch: int, recorded_at: datetime) -> pa.Table:
        added = {"batch": batch, "generation": self.generation, "recorded_at": recorded_at}
        rows = rows.drop_columns([name for name in added if name in rows.column_names])
        for name, value in added.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
        return rows

    def _completed(self, ledger: str, rows: DataFrame, batch: int, recorded_at: datetime) -> DataFrame:
        """The rows with all columns of the ledger, in its types."""
        # as text, in one call: a Column for each of them is several calls of the JVM, a tenth of a second for the columns of `ticks`
        added = {
            "batch": f"{batch:d}L",
            "generation": f"{self.generation:d}L",
            "recorded_at": literal(recorded_at),
        }
        present = set(rows.columns)
        schema = self._spark.table(self.name(ledger)).schema
        return rows.selectExpr(
            *(
                f"cast({added.get(column.name, f'`{column.name}`' if column.name in present else 'null')}"
                f" as {column.dataType.simpleString()}) as `{column.name}`"
                for column in schema
            )
        )

    def _refuse_beside_a_doubt(self, ledger: str, batch: int) -> None:
        doubtful = [f"batch {tried} has been appended to {other}" for other, tried in self._in_doubt.items() if other != ledger]
        if doubtful:
            self.batch = batch
            raise AppendError(f"batch {batch} was not appended to {ledger}: it is not known yet whether {' and '.join(doubtful)}")

    def _refuse_if_taken_over(self, ledger: str, batch: int, error: Exception) -> None:
        try:
            by = self.superseded_by()
        except Exception:
            # the tables can't be read either: the next append finds out
            return
        if by is not None:
            message = f"generation {by} has taken over from generation {self.generation}: batch {batch} was not appended to {ledger}"
            raise TakenOverError(by, message) from error

    def _end_of_table(self, ledger: str) -> _End:
        # the batch is read in this snapshot: rows appended between two separate reads would be neither known nor a conflict
        current = self._table(ledger).currentSnapshot()
        if current is None:
            return _End(None, 0)
        snapshot = int(current.snapshotId())
        row = self._spark.sql(f"select max(batch) as batch from {self.name(ledger)} version as of {snapshot}").collect()[0]
        return _End(snapshot, int(row["batch"] or 0))

    def _snapshot_of(self, ledger: str, token: str) -> int | None:
        """The snapshot of an append of ours: another commit, of maintenance for instance, may have come after it.

        If it is not found (expired already), the one before: an older one only makes validation slower.
        """
        table = self._table(ledger)
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            if snapshot.summary().get(APPEND) == token:
                return int(snapshot.snapshotId())
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return self._ends[ledger].snapshot

    def _table(self, ledger: str) -> Any:
        return iceberg_table(self._spark, self.name(ledger))


def _is_refused(error: Exception) -> bool:
    """Whether an append that failed has certainly not been committed: it was refused, or its rows could not be made.

    Anything else may be a commit whose answer got lost.
    """
    return is_commit_refused(error) or any(one.is_raised_in(*_BEFORE_A_COMMIT) for one in java_errors(error))
