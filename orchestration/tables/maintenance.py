"""Maintenance: combines many small files into few large ones, and removes snapshots and files that are no longer needed.

It changes rows only to remove what an operator has purged, and removes rows only if they are as old as a setting says (retention.py).

It may run beside the loop, in another process: it rewrites only settled rows (see Settled), and its commits (Iceberg's
operation `replace`) are no conflict for the loop's guarded appends. docs/maintenance.md explains why.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.table import Table

from orchestration.logs import event
from orchestration.output import as_json, console, one_line
from orchestration.settings import Settings
from orchestration.tables.catalog import left_behind, missing_tables
from orchestration.tables.migration import unreadable_tables
from orchestration.tables.procedures import Rewrite
from orchestration.tables.procedures import Table as IcebergTable
from orchestration.tables.purging import purge
from orchestration.tables.retention import Retention
from orchestration.tables.rows import collected
from orchestration.tables.spark import in_short, is_commit_refused, start_session
from orchestration.tables.spark import schema as schema_of

log = logging.getLogger(__name__)

TABLES: Final = ("events", "publish_results", "ticks", "deliveries")

# How many batches a partition of `events` holds.
_EVENTS_PARTITION_BATCHES: Final = 1000
# How often a step is tried if its commit is refused because of another commit.
_ATTEMPTS: Final = 3

# An hour that lies ahead is compacted when it has so many small files: its payloads are rewritten each time.
_AHEAD_FILES = 50

T = TypeVar("T")


class MaintenanceError(Exception):
    """The tables can't be maintained: some are missing, or they have another table version. The message says what to do."""


@dataclass(frozen=True)
class Settled:
    """What the loop has finished with, by its last row in `ticks`: all batches up to `batch` are decided; written: by outbox, the last
    that is written back. hour: everything due before this whole hour is closed, or waits for a paused destination.
    """

    batch: int
    hour: datetime
    written: Mapping[str, int]

    @property
    def is_past(self) -> str:
        """The condition that a row was due before that hour. As a text: the procedures of Iceberg know no function that makes a time."""
        return f"due_at < timestamp '{self.hour:%Y-%m-%d %H:%M:%S}'"

    @property
    def is_ahead(self) -> str:
        """The condition that a row is due after that hour."""
        return f"due_at >= timestamp '{self.hour + timedelta(hours=1):%Y-%m-%d %H:%M:%S}'"


@dataclass(frozen=True)
class Rows:
    """How many rows of a table were emptied, because they were purged, and how many were removed."""

    purged: int
    removed: int


@dataclass(frozen=True)
class TableReport:
    """What was done to a table. files and bytes: those of the whole table, including what the loop has appended meanwhile."""

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows_purged: int
    rows_removed: int
    files_rewritten: int
    bytes_rewritten: int
    manifests_rewritten: int
    snapshots_expired: int
    orphans_removed: int
    milliseconds: int
    left: str = ""
    """What is left for the next run, and why."""


@dataclass(frozen=True)
class MaintenanceReport:
    """What one run did, table by table."""

    tables: tuple[TableReport, ...]


def maintain(settings: Settings, spark: SparkSession | None = None, now: datetime | None = None) -> MaintenanceReport:
    """Removes what was purged, compacts the tables' files and manifests, expires their snapshots and removes files that nothing refers to.

    A second run right after the first commits nothing. Raises MaintenanceError if the tables don't exist.
    """
    spark = spark or start_session(settings)
    schema = schema_of(settings.project)
    _must_exist(spark, schema, settings)
    settled = _settled(spark, schema)
    now = now or datetime.now(UTC)
    left: dict[str, list[str]] = {table: [] for table in TABLES}
    purged = purge(spark, schema, f"{settled.is_past} and batch <= {settled.batch:d}", _unless_overtaken) if settled else {}
    for table, count in purged.items():
        if count is None:
            left[table].append(f"payloads: other commits came first {_ATTEMPTS} times")
    removed = _remove_old(spark, schema, settled, settings, now, left) if settled else {}
    return MaintenanceReport(
        tuple(
            _maintain(
                IcebergTable(spark, f"{schema}.{table}"),
                table,
                rewrites(settled).get(table, ()),
                Rows(purged.get(table) or 0, removed.get(table) or 0),
                left[table],
                settings,
                now,
            )
            for table in TABLES
        )
    )


def print_report(report: MaintenanceReport, output: Literal["table", "json"]) -> None:
    """Prints to standard output, a line or an object for each table."""
    if output == "json":
        for done in report.tables:
            print(as_json(asdict(done)))
        return
    table = Table(box=None, pad_edge=False)
    for name in (
        "table",
        "files",
        "bytes",
        "rows purged",
        "rows removed",
        "files rewritten",
        "manifests rewritten",
        "snapshots expired",
        "orphans removed",
        "ms",
    ):
        table.add_column(name, justify="left" if name == "table" else "right")
    for done in report.tables:
        table.add_row(
            done.table,
            f"{done.files_before:,} -> {done.files_after:,}",
            f"{done.bytes_before:,} -> {done.bytes_after:,}",
            *(f"{count:,}" for count in (done.rows_purged, done.rows_removed, done.files_rewritten, done.manifests_rewritten)),
            *(f"{count:,}" for count in (done.snapshots_expired, done.orphans_removed, done.milliseconds)),
        )
    console(200).print(table)
    for done in report.tables:
        if done.left:
            print(one_line(f"{done.table}: left for the next run: {done.left}"), file=sys.stderr)


def rewrites(settled: Settled | None) -> dict[str, tuple[Rewrite, ...]]:
    """What may be rewritten, by table; empty before the first loop has run.

    Only batches that are decided, as the guard of the loop in charge checks only later ones. `events` by whole partitions, and
    `publish_results` and `deliveries` by hours that are past, so that each payload is rewritten once; `ticks`, which is small, at any time.
    Rows are sorted by kind first, so that queries of dead letters skip the row groups of the far more numerous retries; then by the
    original coordinates, so that look-ups by coordinates skip row groups, too.

    Hours that lie ahead are compacted, too: a message with a long delay is in a small file of its decide run until then, and a look-up by
    coordinates may have to open each of them. Their rows are sorted by when they are due, as they are read next.
    """
    if settled is None:
        return {}
    complete = (settled.batch + 1) // _EVENTS_PARTITION_BATCHES * _EVENTS_PARTITION_BATCHES
    past = settled.is_past
    order = "kind, original_topic, original_partition, original_offset"
    ahead = Rewrite(f"{settled.is_ahead} and batch <= {settled.batch}", "due_at", _AHEAD_FILES)
    return {
        "events": (Rewrite(f"batch < {complete}"),),
        "publish_results": (Rewrite(f"{past} and batch <= {settled.batch}", order),),
        "ticks": (Rewrite(f"batch <= {settled.batch}"),),
        "deliveries": (Rewrite(past, order), ahead),
    }


def _must_exist(spark: SparkSession, schema: str, settings: Settings) -> None:
    spark.sql(f"create namespace if not exists {schema}")
    exist = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    missing = [table for table in TABLES if table not in exist]
    if missing and left_behind(settings):
        raise MaintenanceError(missing_tables(settings))
    if missing:
        raise MaintenanceError(
            f"nothing to maintain: {', '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist in the schema {schema} "
            f"under {settings.home}. `redrive run` makes the tables; --home or REDRIVE_HOME names another state"
        )
    if objection := unreadable_tables(settings, spark, schema):
        raise MaintenanceError(objection)


def _settled(spark: SparkSession, schema: str) -> Settled | None:
    last = collected(
        spark.sql(
            f"""
            select
                watermark,
                -- deliveries due before the floor that are still open wait for a paused destination; maintenance doesn't change their rows
                date_trunc('hour', floor) as hour,
                transform_values(outboxes, (name, position) -> least(position.written, position.decided)) as written
            from {schema}.ticks
            order by batch desc
            limit 1
            """
        )
    )
    return Settled(int(last[0]["watermark"]), last[0]["hour"], last[0]["written"] or {}) if last else None


def _remove_old(
    spark: SparkSession, schema: str, settled: Settled, settings: Settings, now: datetime, left: dict[str, list[str]]
) -> dict[str, int | None]:
    """Removes rows that are older than the settings say; returns how many, by table. None: left for the next run."""

    def attempt(table: str, step: Callable[[], int]) -> int | None:
        return _unless_overtaken(step, "rows", left[table])

    retention = Retention(spark, schema, settled.batch, settled.written, attempt)
    finished = min(now - timedelta(days=settings.retention_days), settled.hour) if settings.retention_days else None
    removed = retention.remove_finished(finished) if finished else {}
    # last: rows of ticks tell since when messages are recovered
    return removed | retention.trim_ticks(now - timedelta(days=settings.ticks_days), finished)


def _maintain(
    table: IcebergTable, name: str, rewrites: tuple[Rewrite, ...], rows: Rows, left: list[str], settings: Settings, now: datetime
) -> TableReport:
    began = time.monotonic()
    before = table.size()
    rewritten = [_unless_overtaken(partial(table.rewrite_files, rewrite), "files", left) for rewrite in rewrites]
    manifests = _unless_overtaken(table.rewrite_manifests, "manifests", left)
    expired = _unless_overtaken(
        lambda: table.expire(now - timedelta(minutes=settings.maintenance_snapshot_minutes), settings.maintenance_snapshots),
        "snapshots",
        left,
    )
    orphans = table.remove_orphans(now - timedelta(days=settings.maintenance_orphan_days))
    after = table.size()
    report = TableReport(
        table=name,
        files_before=before.files,
        files_after=after.files,
        bytes_before=before.bytes,
        bytes_after=after.bytes,
        rows_purged=rows.purged,
        rows_removed=rows.removed,
        files_rewritten=sum(done.files for done in rewritten if done),
        bytes_rewritten=sum(done.bytes for done in rewritten if done),
        manifests_rewritten=manifests or 0,
        snapshots_expired=expired or 0,
        orphans_removed=orphans,
        milliseconds=round((time.monotonic() - began) * 1000),
        left="; ".join(left),
    )
    event(
        log, logging.INFO, "table_maintained",
        table=report.table, files_rewritten=report.files_rewritten, snapshots_expired=report.snapshots_expired, ms=report.milliseconds,
    )  # fmt: skip
    return report


def _unless_overtaken(step: Callable[[], T], what: str, left: list[str]) -> T | None:
    """Runs a step, and again if its commit is refused because of another one. After _ATTEMPTS tries, the step is left for the next run."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return step()
        except (Py4JJavaError, PySparkException) as error:
            if not is_commit_refused(error):
                raise
            event(
                log, logging.WARNING, "maintenance_commit_refused",
                step=what, attempt=attempt, attempts=_ATTEMPTS, reason=in_short(error),
            )  # fmt: skip
    left.append(f"{what}: other commits came first {_ATTEMPTS} times")
    return None
