"""Maintenance: fewer files, the same rows; nothing that the loop still works on; and no append that is refused because of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from orchestration.settings import Settings, load_settings
from orchestration.tables import maintenance
from orchestration.tables.maintenance import TABLES, MaintenanceError, MaintenanceReport, TableReport, maintain
from orchestration.tables.procedures import Table as IcebergTable
from orchestration.tables.purging import purge
from orchestration.tables.rows import collected
from tests.dbt.harness import PROJECT, Home, Report, Result, report
from tests.dbt.test_dead_letter_marts import ask, die, one

# later than all that the tests have written, so that all of it is old enough to be expired
LATER = datetime.now(UTC) + timedelta(hours=2)


def settings_of(home: Home) -> Settings:
    # the tests' rows are of March: by the time of this machine, all rows of ticks are old
    return load_settings(home=home.path, seeds=home.path / "seeds", project=PROJECT, maintenance_snapshots=1, ticks_days=36_500)


@pytest.fixture
def settings(home: Home) -> Settings:
    return settings_of(home)


def make_past(home: Home) -> None:
    """Six appends to each table in hours that are past by now; then one more decide run, and a report that nobody has decided."""
    topic = f"maintained-{home.batch}"
    home.later(hours=1)
    # into the last batches of a thousand
    home._ledgers.batch = home.batch // 1000 * 1000 + 970
    input_ids = [input_id for offset in range(6) for input_id in home.append_reports(report(topic, offset, failed_at=home.now))]
    home.decide()
    decisions = home.decisions()
    for offset, input_id in enumerate(input_ids):
        home.append_results(Result(decisions[input_id], offset=offset))
        home.append_tick(home.batch)
    for run in reversed(range(1, 6)):
        # what other decide runs of that hour wrote, made from this one for speed
        home.spark.sql(
            f"""
            insert into {home.schema}.deliveries by name
            select
                * except (input_id, delivery_id, original_offset),
                concat(input_id, '/{run}') as input_id,
                concat(delivery_id, '/{run}') as delivery_id,
                original_offset + {run * 1000} as original_offset
            from {home.schema}.deliveries
            where original_topic = '{topic}' and original_offset < 1000
            """
        )
    home._ledgers.batch = home.batch // 1000 * 1000 + 1000
    home.later(hours=2)
    home.append_reports(report(topic, 6, failed_at=home.now))
    home.decide()
    home.append_tick(home.batch)
    home.append_reports(report(topic, 7, failed_at=home.now))


def data_of(home: Home, table: str) -> Path:
    """The directory of the table's data files."""
    return home.path / "warehouse" / home.schema / table / "data"


def content(home: Home) -> dict[str, list[str]]:
    return {table: sorted(map(str, home.read(table))) for table in TABLES}


def files(home: Home, table: str, where: str = "true") -> set[str]:
    rows = home.spark.sql(f"select distinct _file as file from {home.schema}.{table} where {where}").collect()
    return {row["file"] for row in rows}


def versions(home: Home, table: str) -> list[str]:
    return [row["file"] for row in home.spark.sql(f"select file from {home.schema}.{table}.metadata_log_entries").collect()]


def by_table(done: MaintenanceReport) -> dict[str, TableReport]:
    return {table.table: table for table in done.tables}


@dataclass(frozen=True)
class Maintained:
    """What the tables were like before a maintenance, and what it says that it did."""

    rows: dict[str, list[str]]
    wheel: set[str]
    in_use: dict[str, set[str]]
    snapshots: dict[str, int]
    done: dict[str, TableReport]


@pytest.fixture(scope="module")
def maintained(home: Home) -> Maintained:
    """The tables after six appends to each in hours that are past, and a maintenance."""
    make_past(home)
    # what other tests have purged goes first
    settled = maintenance._settled(home.spark, home.schema)
    assert settled
    purge(home.spark, home.schema, f"{settled.is_past} and batch <= {settled.batch}", maintenance._unless_overtaken)
    current = f"due_at >= timestamp '{home.now:%Y-%m-%d %H}:00:00'"
    last_snapshot = "select max_by(snapshot_id, committed_at) as id from {}.{}.snapshots"
    return Maintained(
        content(home),
        files(home, "deliveries"),
        # what the loop works on: the last thousand batches, and what is due from this hour on
        {
            "events": files(home, "events", f"batch >= {home.batch // 1000 * 1000}"),
            "publish_results": files(home, "publish_results", current),
            "deliveries": files(home, "deliveries", current),
        },
        {table: home.spark.sql(last_snapshot.format(home.schema, table)).collect()[0]["id"] for table in TABLES},
        by_table(maintain(settings_of(home), home.spark, LATER)),
    )


@pytest.mark.long
def test_rows_stay_as_they_are_in_fewer_sorted_files(home: Home, maintained: Maintained) -> None:
    done = maintained.done
    assert content(home) == maintained.rows
    assert {table: done[table].left for table in TABLES} == dict.fromkeys(TABLES, "")
    assert [table for table in TABLES if not done[table].files_after <= done[table].files_before - 5] == []
    assert [table for table in TABLES if done[table].files_rewritten < 6 or done[table].snapshots_expired < 1] == []
    assert maintained.in_use["events"]
    assert maintained.in_use["deliveries"]
    for table, used in maintained.in_use.items():
        assert used <= files(home, table), f"{table}: a file that the loop works on was rewritten"
    for file in files(home, "deliveries") - maintained.wheel:
        rows = home.spark.read.parquet(file).select("kind", "original_topic", "original_partition", "original_offset").collect()
        nulls_first = sorted(rows, key=lambda row: [(value is not None, value) for value in row])
        assert rows == nulls_first, "whoever looks for dead letters, or for coordinates, skips less of a file that is not sorted by them"


@pytest.mark.long
def test_a_second_maintenance_commits_nothing(home: Home, maintained: Maintained) -> None:
    assert maintained.done
    unchanged = {table: versions(home, table) for table in TABLES}
    again = by_table(maintain(settings_of(home), home.spark, LATER))
    assert {table: versions(home, table) for table in TABLES} == unchanged
    assert [table for table in TABLES if again[table].files_rewritten or again[table].snapshots_expired] == []


@pytest.mark.long
def test_a_guarded_append_that_began_before_maintenance_is_not_refused(home: Home, maintained: Maintained) -> None:
    """The loop's guard: nobody has written batches above mine since my last snapshot."""
    for table in ("events", "publish_results", "ticks"):
        name = f"{home.schema}.{table}"
        snapshot = maintained.snapshots[table]
        assert home.spark.sql(f"select 1 from {name}.snapshots where snapshot_id = {snapshot}").collect(), f"{table}: expired"
        row = home.spark.table(name).limit(1).withColumn("batch", F.lit(home.batch + 1))
        (
            row.writeTo(name)
            .option("isolation-level", "serializable")
            .option("validate-from-snapshot-id", str(snapshot))
            .overwrite(F.col("batch") > home.batch)
        )
        home._ledgers.read_end()


def test_a_destination_that_has_been_missing_for_days_holds_nothing_up(home: Home) -> None:
    home.later(hours=1)
    days_ago = home.now - timedelta(days=9)
    row = (1, "tick", home.batch, home.now, home.now, {"missing-retry": (home.now, 60_000, days_ago, "missing", None)})
    aside = "map<string, struct<until: timestamp, pause_ms: bigint, floor: timestamp, why: string, error: string>>"
    columns = f"tick bigint, kind string, watermark bigint, floor timestamp, loop_time timestamp, paused_destinations {aside}"
    home._ledgers.append("ticks", home.spark.createDataFrame([row], columns), home.now)
    settled = maintenance._settled(home.spark, home.schema)
    assert settled
    assert settled.hour == home.now.replace(minute=0, second=0, microsecond=0)


SECRET = "s3cret"


def holding(home: Home) -> dict[str, int]:
    """How many rows of each table say the secret, the bytes of files of earlier snapshots aside."""
    return {table: sum(SECRET in str(row) for row in home.read(table)) for table in TABLES}


@pytest.mark.slow
def test_what_is_purged_is_removed_once_it_is_settled_and_nothing_else(home: Home, settings: Settings) -> None:
    topic = f"purged-{home.batch}"
    home.later(hours=1)

    def failed(offset: int) -> Report:
        failed = report(topic, offset, error="KeyError", key=SECRET.encode(), value=SECRET.encode(), failed_at=home.now)
        return failed.but(headers=(*(failed.headers or ()), ("redrive-error-message", SECRET.encode())))

    purged, kept = die(home, failed(0), failed(1))
    # what came of it besides: another report of it, and what operators said
    home.append_reports(failed(0))
    ask(home, ("note", purged))
    ask(home, ("discard", purged), ("discard", kept))
    home.append_tick(home.batch)
    before = content(home)
    assert {table: done.rows_purged for table, done in by_table(maintain(settings, home.spark, LATER)).items()} == dict.fromkeys(TABLES, 0)
    assert content(home) == before
    ask(home, ("purge", purged))
    home.append_tick(home.batch)
    # the hour is not over
    assert {done.rows_purged for done in maintain(settings, home.spark, LATER).tables} == {0}
    home.later(hours=2)
    home.append_tick(home.batch)
    held = holding(home)
    rows = {table: len(home.read(table)) for table in TABLES}
    done = by_table(maintain(settings, home.spark, LATER))
    assert {table: done[table].rows_purged for table in TABLES} == {"events": 2, "publish_results": 0, "ticks": 0, "deliveries": 5}
    # of the message that was kept: its report, its dead letter, and what was said about that
    assert held["events"] - holding(home)["events"] == 2
    left = [row for row in home.read("deliveries") if row["message_id"] == purged["message_id"]]
    assert not any(SECRET in str(row) for row in left)
    assert {row["payload_bytes"] for row in left} == {0}
    assert any(SECRET in str(row) for row in home.read("deliveries") if row["message_id"] == kept["message_id"])
    assert {table: len(home.read(table)) for table in TABLES} == rows
    unchanged = {table: versions(home, table) for table in TABLES}
    again = maintain(settings, home.spark, LATER)
    assert {table.rows_purged for table in again.tables} == {0}
    assert {table: versions(home, table) for table in TABLES} == unchanged
    # the loop goes on: its guarded appends, and its decide runs
    home.append_tick(home.batch)
    home.append_reports(failed(2))
    home.decide()
    assert one(home, purged)["purged_at"] is not None


@pytest.mark.long
def test_files_that_nothing_refers_to_are_removed_when_they_are_old(home: Home, settings: Settings) -> None:
    data = data_of(home, "deliveries")
    data.mkdir(exist_ok=True)
    old, new = data / "killed-long-ago.parquet", data / "being-written.parquet"
    for path in (old, new):
        path.write_bytes(b"half of a file")
    days_ago = time.time() - 4 * 86_400
    os.utime(old, (days_ago, days_ago))
    done = by_table(maintain(settings, home.spark))
    assert (old.exists(), new.exists()) == (False, True)
    assert done["deliveries"].orphans_removed == 1


@pytest.mark.long
def test_hours_without_files_are_not_searched_one_task_each(home: Home) -> None:
    for hour in range(40):
        (data_of(home, "deliveries") / f"due_at_hour=an-hour-{hour}").mkdir(parents=True)
    context = home.spark.sparkContext
    status = context.statusTracker()
    context.setJobGroup("before", "the search has a group of its own")
    context.parallelize([0], 1).count()
    context._jsc.clearJobGroup()
    first = max(status.getJobIdsForGroup("before")) + 1
    IcebergTable(home.spark, f"{home.schema}.deliveries").remove_orphans(datetime.now(UTC) - timedelta(days=3))
    jobs = [job for number in range(first, first + 40) if (job := status.getJobInfo(number))]
    tasks = [stage.numTasks for job in jobs for number in job.stageIds if (stage := status.getStageInfo(number))]
    assert tasks, "the search had no job"
    assert max(tasks) < 40


@pytest.fixture
def running(home: Home) -> Iterator[subprocess.Popen[str]]:
    """`redrive maintain` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from orchestration.cli.main import main; main()", "maintain", "--format", "json", "--home", str(home.path)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "REDRIVE_MAINTENANCE_SNAPSHOTS": "1", "REDRIVE_MAINTENANCE_SNAPSHOT_MINUTES": "1"},
    )
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def past(home: Home) -> None:
    make_past(home)


@pytest.mark.usefixtures("past")
@pytest.mark.slow
def test_appends_go_on_while_another_process_maintains(home: Home, running: subprocess.Popen[str]) -> None:
    before = content(home)
    appended: list[str] = []
    while running.poll() is None:
        home.append_tick(home.batch)
        appended += home.append_reports(report("appended-meanwhile", len(appended), failed_at=home.now))
    assert len(appended) > 1, "the maintenance was over before anything was appended beside it"
    assert running.stdout
    done = {line["table"]: line for line in map(json.loads, running.stdout)}
    assert running.returncode == 0
    assert [table for table in TABLES if done[table]["files_rewritten"] == 0 or done[table]["left"]] == []
    after = content(home)
    assert after["deliveries"] == before["deliveries"]
    assert len(after["ticks"]) == len(before["ticks"]) + len(appended)
    assert len(after["events"]) == len(before["events"]) + len(appended)
    assert all(set(before[table]) <= set(after[table]) for table in TABLES)


def test_without_tables_it_says_which_are_missing(home: Home, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_SCHEMA", "nothing_here")
    with pytest.raises(MaintenanceError, match="events, publish_results, ticks, deliveries do not exist in the schema nothing_here"):
        maintain(settings, home.spark)
    home.spark.sql("drop namespace nothing_here")


@pytest.mark.slow
def test_an_hour_that_lies_ahead_is_compacted_when_it_has_many_files(home: Home, maintained: Maintained) -> None:
    assert maintained.done
    name = f"{home.schema}.deliveries"
    ahead = home.now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=5)
    repeated = home.spark.table(name).where(f"batch < {home.batch}").crossJoin(home.spark.range(180))
    some = repeated.orderBy("id").drop("id").limit(180)
    moved = some.withColumns(
        {
            "due_hour": F.lit(ahead),
            "due_at": F.lit(ahead) + F.make_dt_interval(secs=F.rand(1) * 3000),
            "message_id": F.concat(F.lit("ahead:"), "message_id"),
        }
    )
    # 60 tasks, each of which writes a file
    moved.repartition(60).writeTo(name).option("distribution-mode", "none").option("fanout-enabled", "true").append()
    hour = f"due_hour = timestamp '{ahead:%Y-%m-%d %H:%M:%S}'"
    before = home.spark.table(name).where(hour)
    rows, many = sorted(map(str, collected(before))), files(home, "deliveries", hour)
    assert len(many) >= 50
    maintain(settings_of(home), home.spark, LATER)
    (file,) = files(home, "deliveries", hour)
    assert sorted(map(str, collected(home.spark.table(name).where(hour)))) == rows
    due = [row["due_at"] for row in collected(home.spark.read.parquet(file).select("due_at"))]
    assert due == sorted(due), "a publish step skips less of a file that is not sorted by what it looks for"
    home.spark.sql(f"delete from {name} where message_id like 'ahead:%'")
