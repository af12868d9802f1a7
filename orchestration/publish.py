"""Publishing: what is due goes to Kafka through a Spark job, and what became of it into the ledger `publish_results`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from orchestration.ledgers import AppendError, Ledgers
from publisher import READY, RESULTS, PublisherSettings
from publisher.contract import DELIVERED, FAILED, STOPPED, UNKNOWN
from publisher.publishing import epoch_ms, publish_at

# How far ahead a step looks for the next due time, so that the loop knows how long it may sleep.
HORIZON = timedelta(seconds=60)


@dataclass(frozen=True)
class Waiting:
    """What the wheel holds between the floor and a minute from now: an upper bound, answered results included."""

    rows: int
    size: int
    next_due: datetime | None


@dataclass(frozen=True)
class Stop:
    """A destination (None: Kafka as a whole) that takes no sends at the moment, and why."""

    topic: str | None
    reason: str


@dataclass(frozen=True)
class Published:
    """One publish step.

    upto: everything due up to there was read. open_since: the earliest due among the rows whose outcome is unknown; open_until: when
    the last of them may be sent again.
    """

    upto: datetime
    complete: bool
    delivered: int = 0
    dead_letters: int = 0
    failed: int = 0
    unknown: int = 0
    open_since: datetime | None = None
    open_until: datetime | None = None
    stops: tuple[Stop, ...] = ()
    lateness_ms: tuple[int, int] | None = None

    @property
    def sent(self) -> int:
        """Rows that have a result."""
        return self.delivered + self.failed + self.unknown


@dataclass(frozen=True)
class PublishStep:
    """Sends what is due. Bounded: at most max_rows and max_bytes in one step, the rest follows with the next."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    settings: PublisherSettings
    slots: int
    max_rows: int
    max_bytes: int

    def waiting(self, floor: datetime, now: datetime) -> Waiting:
        """Reads the due slots of the wheel, narrow: how many rows and bytes at most are due, and when the next one is."""
        row = self.spark.sql(
            f"""
            select
                count_if(due_at <= {_time(now)}) as rows,
                coalesce(sum(case when due_at <= {_time(now)} then payload_bytes end), 0) as size,
                min(case when due_at > {_time(now)} then due_at end) as next_due
            from {self.schema}.deliveries
            where kind is not null and due_at >= {_time(floor)} and due_at <= {_time(now + HORIZON)}
            """
        ).collect()[0]
        return Waiting(int(row["rows"]), int(row["size"]), _aware(row["next_due"]))

    def run(
        self,
        floor: datetime,
        now: datetime,
        set_aside: tuple[str, ...],
        clock: Callable[[], datetime],
        waiting: Waiting,
    ) -> Published:
        """Sends what is due between floor and now, except to destinations that are set aside, and appends the results.

        Raises AppendError when the results could not be appended, after trying again without sending again.
        """
        upto = now if waiting.rows <= self.max_rows and waiting.size <= self.max_bytes else self._cut(floor, now, set_aside)
        results = self._send(self._due(floor, upto, now, set_aside), clock)
        try:
            return self._write_down(results, upto, clock, complete=upto == now)
        finally:
            results.unpersist()

    def _due(self, floor: datetime, upto: datetime, now: datetime, set_aside: tuple[str, ...]) -> DataFrame:
        ready = self.spark.sql(
            f"""
            select * from {self.schema}.ready
            where due_at >= {_time(floor)} and due_at <= {_time(upto)}
                and (not_before is null or not_before <= {_time(now)})
            """
        )
        # a topic's name is data, so it is compared with as a literal of Spark's, not written into the statement
        return ready.where(~F.col("topic").isin(*set_aside)) if set_aside else ready

    def _cut(self, floor: datetime, now: datetime, set_aside: tuple[str, ...]) -> datetime:
        """The latest due time up to which what is ready fits into one step, by whole milliseconds; at least one of them."""
        due = (
            self._due(floor, now, now, set_aside)
            .groupBy("due_at")
            .agg(F.count(F.lit(1)).alias("rows"), F.sum("payload_bytes").alias("size"))
            .orderBy("due_at")
            .toLocalIterator()
        )
        rows = size = 0
        cut: datetime | None = None
        for slot in due:
            rows, size = rows + slot["rows"], size + slot["size"]
            if cut is not None and (rows > self.max_rows or size > self.max_bytes):
                return cut
            cut = _aware(slot["due_at"])
        return now

    def _send(self, due: DataFrame, clock: Callable[[], datetime]) -> DataFrame:
        """The results of sending, kept outside of the query that made them: they are appended from there, however often that takes.

        localCheckpoint, never persist: what is lost from a cache is computed, that is, sent, again.
        """
        settings = self.settings
        columns = READY.names
        # results are stamped with the loop's time, as due times are: it may be ahead of the wall clock, never behind
        ahead_ms = round(clock().timestamp() * 1000) - epoch_ms()

        def send(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            task = TaskContext.get()
            slot = task.partitionId() if task else 0
            return publish_at(iter(batches), settings, slot, lambda: epoch_ms() + ahead_ms)

        return (
            due.select(*columns)
            .repartition(self.slots, "order_key")
            .sortWithinPartitions("due_at", "original_topic", "original_partition", "original_offset")
            .mapInArrow(send, from_arrow_schema(RESULTS))
            .localCheckpoint(eager=True)
        )

    def _write_down(self, results: DataFrame, upto: datetime, clock: Callable[[], datetime], *, complete: bool) -> Published:
        lateness = F.unix_millis("sent_at") - F.unix_millis("due_at")
        groups = (
            results.groupBy("outcome")
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.min("due_at").alias("open_since"),
                F.max("not_before").alias("not_before"),
                F.count_if(F.col("kind") == "dead_letter").alias("dead_letters"),
                F.percentile_approx(lateness, [0.5, 0.99]).alias("lateness"),
                F.collect_set(F.when(F.col("outcome") == STOPPED, F.struct("topic", "error_name", "error_message"))).alias("stops"),
            )
            .collect()
        )
        by_outcome = {row["outcome"]: row for row in groups}
        counts = {outcome: int(row["rows"]) for outcome, row in by_outcome.items()}
        if any(rows for outcome, rows in counts.items() if outcome != STOPPED):
            self._append(results.where(F.col("outcome") != STOPPED), clock)
        stops = tuple(
            Stop(stop["topic"], f"{stop['error_message']} ({stop['error_name']})")
            for stop in (by_outcome[STOPPED]["stops"] if STOPPED in by_outcome else ())
        )
        unknown = by_outcome.get(UNKNOWN)
        delivered = by_outcome.get(DELIVERED)
        return Published(
            upto=upto,
            complete=complete,
            delivered=counts.get(DELIVERED, 0),
            dead_letters=int(delivered["dead_letters"]) if delivered else 0,
            failed=counts.get(FAILED, 0),
            unknown=counts.get(UNKNOWN, 0),
            open_since=_aware(unknown["open_since"]) if unknown else None,
            open_until=_aware(unknown["not_before"]) if unknown else None,
            stops=stops,
            lateness_ms=tuple(delivered["lateness"]) if delivered else None,
        )

    def _append(self, results: DataFrame, clock: Callable[[], datetime]) -> None:
        """Appends results, again and again for half a minute: what was sent must not be sent again because a catalog was locked."""
        for pause in (1, 2, 4, 8, 16, None):
            batch = self.ledgers.batch + 1
            try:
                self.ledgers.append("publish_results", results, clock())
                return
            except AppendError:
                if pause is None:
                    raise
            time.sleep(pause)
            # the commit may have gone through, though its answer did not
            self.ledgers.read_end()
            if self.ledgers.has("publish_results", batch):
                return


def _time(moment: datetime) -> str:
    """A moment as a SQL literal, UTC: the session's time zone."""
    return f"timestamp '{moment:%Y-%m-%d %H:%M:%S.%f}'"


def _aware(moment: datetime | None) -> datetime | None:
    """What Spark gives back for a timestamp, in the driver's local time without saying so, as UTC."""
    return moment.astimezone(UTC) if moment is not None else None
