"""The bulk lane: a Spark job sends to Kafka what is due; the results are appended to the ledger `publish_results`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from orchestration.clock import literal, moment_of
from orchestration.loop.due import Due, Waiting, ahead_in, due_in, hours_in, in_windows, not_in, of_batches, of_kind, with_payloads_in
from orchestration.loop.order import TURN, divided, in_order
from orchestration.loop.published import Published, ResultsLostError, Stop, Unrecorded, UnrecordedError
from orchestration.tables.interpreted import FEW_ROWS, interpreted_if_few
from orchestration.tables.ledgers import Ledgers, TakenOverError
from orchestration.tables.rows import collected, ids_frame, iterated
from orchestration.tables.spark import in_short, java_errors
from publisher import (
    DELIVERED,
    FAILED,
    MISSING_TOPIC,
    READY,
    RESULTS,
    STOPPED,
    SUPERSEDED_CODE,
    UNKNOWN,
    PublisherSettings,
    epoch_ms,
    publish,
)

# How far ahead a step looks for the next due time, so that the loop knows how long it may sleep.
HORIZON = timedelta(seconds=60)

# The largest Arrow batch that a task is given: as many rows as a transaction may have by default, and this many bytes.
_BATCH_ROWS = 50_000
_BATCH_BYTES = 64 * 1024 * 1024

# Estimated bytes that are added to a message beside payload_bytes. To each: the headers that name its delivery (publisher/headers.py), with
# names of ordinary length. To a dead letter: the reason, at most 1,024 bytes, and the other headers of its header profile; the profile
# `safi` also repeats the message's own headers, which are not counted here. With `+stack`: the stack.
_STAMPS_BYTES = 400
_REASON_BYTES = 1_536
_STACK_BYTES = 8_192

# Fewer results than this are written by one task, so that there is one file for each hour in which they were due.
_SMALL = 100_000

# Spark's name of the error when rows that it kept are gone.
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"

# The accuracy of the percentiles of lateness: 1/500 of the ranks.
_RANKS = 500


@dataclass(frozen=True)
class BulkLane:
    """The bulk lane: sends what is due by a Spark job, about max_rows rows and max_bytes bytes at once, but all of a millisecond."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    settings: PublisherSettings
    slots: int
    max_rows: int
    max_bytes: int

    # The views are analysed once. Their rows are those of now all the same: Iceberg loads a table's metadata for each scan.

    @cached_property
    def _ready(self) -> DataFrame:
        return self.spark.table(f"{self.schema}.ready")

    @cached_property
    def _named(self) -> DataFrame:
        return self.spark.table(f"{self.schema}.named_deliveries")

    @cached_property
    def _bulk_open(self) -> DataFrame:
        return self.spark.table(f"{self.schema}.bulk_open")

    def waiting(self, what: Due, *, breakers: Collection[str] | None = None) -> Waiting:
        """Reads a few columns of the due hours of the wheel: how many rows and bytes at most are due, and when the next one is.

        breakers: if given, only rows under these breaker keys.
        """
        # the next due time is needed only if all destinations are read
        horizon = timedelta() if what.only else HORIZON
        due_times = [(floor, upto + horizon) for floor, upto in what.times]
        wheel = self.spark.sql(
            f"""
            select
                batch, due_at, topic, breaker_key, kind, header_profile, payload_bytes, sequence_place,
                unix_seconds(date_trunc('hour', payload_due)) as payload_hour
            from {self.schema}.deliveries
            where {of_kind(what)} and {due_in(due_times)} and {not_in(what.seen)} and {ahead_in(what)}
            """
        )
        wheel = _wanted(wheel, what)
        if breakers is not None:
            wheel = wheel.where(F.col("breaker_key").isin(*breakers))
        due = F.col("due_at") <= F.lit(what.upto)
        batches = collected(
            wheel.groupBy("batch").agg(
                F.count_if(due).alias("rows"),
                F.count_if(due & (F.col("due_at") <= F.lit(what.now))).alias("overdue"),
                F.count_if(due & F.col("sequence_place").isNotNull()).alias("ordered"),
                F.coalesce(F.sum(F.when(due, _size())), F.lit(0)).alias("size"),
                F.coalesce(F.max(F.when(due, _size())), F.lit(0)).alias("largest"),
                F.min(F.when(~due, F.col("due_at"))).alias("next_due"),
                F.collect_set(F.when(due, F.col("payload_hour"))).alias("payload_hours"),
            )
        )
        return Waiting(
            rows=sum(int(batch["rows"]) for batch in batches),
            size=sum(int(batch["size"]) for batch in batches),
            largest=max((int(batch["largest"]) for batch in batches), default=0),
            next_due=min((batch["next_due"] for batch in batches if batch["next_due"]), default=None),
            batches=tuple(sorted(int(batch["batch"]) for batch in batches if batch["rows"])),
            payload_hours=tuple(sorted({int(hour) for batch in batches for hour in batch["payload_hours"]})),
            overdue=sum(int(batch["overdue"]) for batch in batches),
            ordered=sum(int(batch["ordered"]) for batch in batches),
        )

    def run(self, what: Due, clock: Callable[[], datetime], waiting: Waiting) -> Published:
        """Sends what is due, and appends the results.

        waiting: the result of `waiting`. Raises UnrecordedError when the results could not be appended, ResultsLostError when
        they never can be, TakenOverError when they must not be.
        """
        with interpreted_if_few(self.spark, waiting.rows, FEW_ROWS):
            return self._run(what, clock, waiting)

    def _run(self, what: Due, clock: Callable[[], datetime], waiting: Waiting) -> Published:
        upto = what.upto if waiting.rows <= self.max_rows and waiting.size <= self.max_bytes else self._cut(what, waiting)
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _rows_per_batch(waiting.largest))
        measures = Observation()
        due = self.due(replace(what, upto=upto), waiting)
        # rows that must stay in order go through one slot, one after another
        results = self._send(divided(due, self.slots) if waiting.ordered else due.coalesce(self.slots), clock, measures)
        seen = measures.get
        published = _published(results, seen, upto, complete=upto == what.upto)
        if published.sent:
            kept = results.where(F.col("outcome") != STOPPED) if seen[STOPPED] else results
            # one small file rather than one from each slot
            self.record(Unrecorded(published, what.now, results, kept.coalesce(1) if published.sent < _SMALL else kept), clock)
        else:
            results.unpersist()
        return published

    def record(self, unrecorded: Unrecorded, clock: Callable[[], datetime]) -> None:
        """Appends results of sends, if they are not in the ledger yet.

        Raises UnrecordedError if they are still to be appended, ResultsLostError if they never can be, TakenOverError if they must not be.
        """
        try:
            self.ledgers.append_once("publish_results", unrecorded.rows, clock(), unrecorded.tried)
        except TakenOverError:
            unrecorded.results.unpersist()
            raise
        except Exception as error:
            if any(one.condition == _LOST for one in java_errors(error.__cause__ or error)):
                raise ResultsLostError(f"the results of {unrecorded.published.sent} sends are lost: what was sent is read back") from error
            raise UnrecordedError(unrecorded, f"the results of sends could not be appended: {in_short(error)}") from error
        unrecorded.results.unpersist()

    def due(self, what: Due, waiting: Waiting) -> DataFrame:
        """The rows of `ready` that are due, with conditions so that only the due hours of the wheel are read.

        waiting: the result of `waiting`. Rows that another process's decide run has added since are left out. They belong to inputs that
        this loop counts as undecided, so its floor stays below them.
        """
        ready = self._ready.where(
            f"""
            {due_in(what.times)}
                and {hours_in(what.times)}
                and {of_kind(what)} and {not_in(what.seen)} and {ahead_in(what)}
                and {of_batches(waiting.batches)}
                and {with_payloads_in(waiting.payload_hours)}
                and (not_before is null or not_before <= {literal(what.now)})
            """
        )
        if what.undecided_after is not None:
            named = self._named.where(f"batch > {what.undecided_after:d}").select("delivery_id")
            ready = ready.join(F.broadcast(named), "delivery_id", "left_anti")
        if what.in_lane:
            ready = ready.join(F.broadcast(ids_frame(self.spark, what.in_lane)), "delivery_id", "left_anti")
        wanted = _wanted(ready, what)
        return (
            in_order(wanted, what, self._open_rows(what))
            if waiting.ordered and what.in_order is not False
            else wanted.withColumn(TURN, F.col("due_at"))
        )

    def open_since(self, what: Due) -> datetime | None:
        """The first due time of what the bulk lane alone sends and is still open, of what a step has looked for; None: there is none."""
        rows = _wanted(self._open_rows(what), what).where(F.col("due_at") <= F.lit(what.upto))
        (found,) = collected(rows.agg(F.min("due_at").alias("since")))
        since: datetime | None = found["since"]
        return since

    def _open_rows(self, what: Due) -> DataFrame:
        since = literal(what.floor if what.open_from is None else min(what.floor, what.open_from))
        return self._bulk_open.where(f"due_at >= {since} and due_hour >= date_trunc('hour', {since})")

    def _cut(self, what: Due, waiting: Waiting) -> datetime:
        """The latest due time up to which what is ready fits into one step. Rows of the same millisecond are never divided."""
        due = self.due(what, waiting).groupBy(TURN).agg(F.count(F.lit(1)).alias("rows"), F.sum(_size()).alias("size")).orderBy(TURN)
        rows = size = 0
        cut: datetime | None = None
        for moment in iterated(due):
            rows, size = rows + moment["rows"], size + moment["size"]
            if cut is not None and (rows > self.max_rows or size > self.max_bytes):
                return cut
            cut = moment[TURN]
        return what.upto

    def _send(self, due: DataFrame, clock: Callable[[], datetime], measures: Observation) -> DataFrame:
        """Sends, and returns the results, which Spark keeps apart from the query: an append that is tried again doesn't send again.

        due: one partition for each slot.

        localCheckpoint, never persist: Spark computes again what is lost from a cache, which here means to send again.
        """
        settings = self.settings
        # results are stamped with the loop's time, as due times are
        ahead_ms = ahead_in_ms(clock)

        def send(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            task = TaskContext.get()
            if task and task.attemptNumber():
                # Spark repeats a task whose executor was lost, whatever spark.task.maxFailures says: what it has sent is read back instead
                raise RuntimeError("a task that sends is not repeated")
            slot = task.partitionId() if task else 0
            return publish(batches, settings, slot, lambda: epoch_ms() + ahead_ms)

        return (
            due.select(*READY.names)
            .mapInArrow(send, from_arrow_schema(RESULTS))
            .observe(measures, *_measures())
            .localCheckpoint(eager=True)
        )


def _published(results: DataFrame, seen: dict[str, Any], upto: datetime, *, complete: bool) -> Published:
    """What a step did, by what was counted while the results came in."""
    stops: tuple[Stop, ...] = ()
    if seen[STOPPED]:
        rows = results.where(F.col("outcome") == STOPPED).select("topic", "error_code", "error_name", "error_message").distinct().collect()
        stops = tuple(
            Stop(
                row["topic"],
                f"{row['error_message']} ({row['error_name']})",
                row["error_name"],
                row["error_code"] == SUPERSEDED_CODE,
                row["error_code"] in MISSING_TOPIC,
            )
            for row in rows
        )
    return Published(
        upto=upto,
        complete=complete,
        delivered=seen[DELIVERED],
        dead_letters=seen["dead_letters"],
        failed=seen[FAILED],
        unknown=seen[UNKNOWN],
        open_since=_moment(seen["open_since"]),
        open_until=_moment(seen["open_until"]),
        stops=stops,
        lateness_ms=(seen["late_p50"], seen["late_p99"]) if seen[DELIVERED] else None,
    )


def _wanted(rows: DataFrame, what: Due) -> DataFrame:
    """The rows of the destinations and circuit breakers that a step sends to."""
    # the name of a topic is data: it is passed as a literal of Spark's, never as text of a statement
    if what.only:
        rows = rows.where(in_windows(what.windows))
    if what.without:
        rows = rows.where(~F.col("topic").isin(*what.without))
    if what.without_breakers:
        rows = rows.where(F.col("breaker_key").isNull() | ~F.col("breaker_key").isin(*what.without_breakers))
    return rows


def ahead_in_ms(clock: Callable[[], datetime]) -> int:
    """How far the loop's clock is ahead of the wall clock, in milliseconds, or a little more.

    With less, a result could have a time before its due time.
    """
    # read first, as in LoopClock.ahead
    wall = epoch_ms()
    return round(clock().timestamp() * 1000) - wall


def _size() -> Column:
    """The estimated size of a row of the wheel or of `ready` when it is sent. Headers are not measured: they would have to be built."""
    reason = F.when(F.col("kind") == "dead_letter", _REASON_BYTES).otherwise(0)
    stack = F.when(F.col("header_profile").endswith("+stack"), _STACK_BYTES).otherwise(0)
    return F.col("payload_bytes") + _STAMPS_BYTES + reason + stack


def _rows_per_batch(largest: int) -> int:
    """How many rows a task is given at once, so that they fit into its memory even if each is the largest.

    A number of rows: Spark can bound batches by bytes, too, but measures the batch anew for each row, which costs more than sending.
    """
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(largest, 1)))


def _measures() -> list[Column]:
    """What is counted while results come in: to read them a second time would cost as much as writing them."""
    outcome = F.col("outcome")
    delivered = outcome == DELIVERED
    lateness = F.when(delivered, F.unix_millis("sent_at") - F.unix_millis("due_at"))
    return [
        *(F.count_if(outcome == name).alias(name) for name in (DELIVERED, FAILED, UNKNOWN, STOPPED)),
        F.count_if(delivered & (F.col("kind") == "dead_letter")).alias("dead_letters"),
        F.unix_micros(F.min(F.when(outcome == UNKNOWN, F.col("due_at")))).alias("open_since"),
        F.unix_micros(F.max("not_before")).alias("open_until"),
        # the default accuracy, 1/10000 of the ranks, sorts more for a difference that nobody would see
        F.percentile_approx(lateness, 0.5, _RANKS).alias("late_p50"),
        F.percentile_approx(lateness, 0.99, _RANKS).alias("late_p99"),
    ]


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else moment_of(micros)
