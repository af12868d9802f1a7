"""Where the tables lie: under names that every Iceberg reader understands, also those that version 0.1.0 made under others."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.rules.check import _catalog
from orchestration.settings import Settings, load_settings
from orchestration.status import Status
from orchestration.tables import catalog
from orchestration.tables.catalog import CatalogError, default_catalog, left_behind, missing_tables, move_tables
from orchestration.tables.dbt import DbtError
from orchestration.tables.query import Tables
from orchestration.tables.spark import schema
from tests.dbt.harness import PROJECT, Home, report
from tests.log_events import logged


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a home of this test's own."""
    return load_settings(home=tmp_path, project=PROJECT)


def _session(home: Home, settings: Settings, name: str) -> SparkSession:
    """A session on a home whose catalog has a name: with `redrive`, as version 0.1.0 configured it."""
    session = home.spark.newSession()
    own = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{settings.catalog}?busy_timeout=60000",
        ".jdbc.schema-version": "V1",
        ".warehouse": str(settings.warehouse),
        ".cache-enabled": "false",
    }
    for option, value in own.items():
        session.conf.set(f"spark.sql.catalog.{name}{option}", value)
    session.conf.set("spark.sql.defaultCatalog", name)
    return session


@pytest.fixture
def before(home: Home, settings: Settings) -> SparkSession:
    """A program of version 0.1.0 with its tables: it still runs."""
    session = _session(home, settings, "redrive")
    session.sql("create namespace if not exists redrive")
    for table in ("ticks", "events"):
        session.sql(f"create table redrive.{table} (batch bigint) using iceberg")
        session.sql(f"insert into redrive.{table} values (1)")
    session.sql("create view redrive.seen as select batch from redrive.events")
    session.sql("create namespace redrive.staging")
    session.sql("create table redrive.staging.other (number int) using iceberg")
    return session


def _entries(settings: Settings) -> set[tuple[str, ...]]:
    with sqlite3.connect(settings.catalog) as file:
        return set(file.execute("select catalog_name, table_namespace, table_name from iceberg_tables"))


@pytest.mark.slow
def test_the_catalog_is_not_called_like_the_schema(home: Home) -> None:
    assert default_catalog(PROJECT) != schema(PROJECT)
    listed = home.spark.sql("select current_catalog() as name").collect()[0]["name"]
    assert schema(PROJECT) in {row["namespace"] for row in home.spark.sql(f"show namespaces in {listed}").collect()}


def test_tables_of_before_are_moved_whole_and_programs_of_before_write_no_more(
    home: Home, settings: Settings, before: SparkSession
) -> None:
    assert left_behind(settings)
    assert "0.1.0" in missing_tables(settings)
    assert move_tables(settings)
    assert _entries(settings) == {
        ("lake", "redrive", "ticks"),
        ("lake", "redrive", "events"),
        ("lake", "redrive", "seen"),
        ("lake", "staging", "other"),
    }
    with pytest.raises(PySparkException):
        before.sql("insert into redrive.events values (2)")
    now = _session(home, settings, "lake")
    now.sql("insert into redrive.events values (3)")
    assert sorted(row["batch"] for row in now.table("redrive.events").collect()) == [1, 3]
    assert {row["namespace"] for row in now.sql("show namespaces in lake").collect()} == {"redrive", "staging"}
    # a view of before names the catalog of before, until it is made anew under its name
    now.sql("create or replace view redrive.seen as select batch from redrive.events")
    assert now.table("redrive.seen").count() == 2
    assert not left_behind(settings)
    assert not move_tables(settings)


def test_an_append_that_has_begun_before_the_move_fails_after_it(settings: Settings, before: SparkSession) -> None:
    # a session has a JVM
    table = before._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(before._jsparkSession, "redrive.events")  # type: ignore[union-attr]
    append = table.newAppend()
    assert move_tables(settings)
    with pytest.raises(Exception, match=r"CommitFailedException|NoSuchTableException"):
        append.commit()


def test_a_move_that_ends_halfway_has_not_begun(settings: Settings, before: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = _entries(settings)
    rename = catalog._rename

    def dies(file: sqlite3.Connection, name: str) -> None:
        rename(file, name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_rename", dies)
        with pytest.raises(KeyboardInterrupt):
            move_tables(settings)
    assert _entries(settings) == entries
    assert move_tables(settings)


def test_nothing_is_moved_under_a_running_loop(settings: Settings, before: SparkSession) -> None:
    entries = _entries(settings)
    of_another = Status(
        state="running", generation=1, instance="default", pid=os.getppid(), tick=1, at="", watermark=1, batch=1, floor="", next_due=None
    )
    settings.status_file.write_text(json.dumps(asdict(of_another)))
    with pytest.raises(CatalogError, match=str(os.getppid())):
        move_tables(settings)
    assert _entries(settings) == entries
    settings.status_file.write_text(json.dumps({**asdict(of_another), "state": "stopped"}))
    assert move_tables(settings)


def test_tables_that_nothing_was_written_to_give_way_and_others_do_not(
    home: Home, settings: Settings, before: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    now = _session(home, settings, "lake")
    now.sql("create namespace redrive")
    now.sql("create table redrive.ticks (batch bigint) using iceberg")
    assert move_tables(settings)
    again = _session(home, settings, "lake")
    assert [row["batch"] for row in again.table("redrive.ticks").collect()] == [1]
    # the program of before is started once more, and makes its tables anew
    before.sql("create table redrive.ticks (batch bigint) using iceberg")
    before.sql("insert into redrive.ticks values (7)")
    assert not left_behind(settings)
    assert not move_tables(settings)
    assert [said["version"] for said in logged(caplog, "older_tables_ignored")][-1] == "0.1.0"
    assert [row["batch"] for row in again.table("redrive.ticks").collect()] == [1]


def test_a_home_without_tables_has_none_to_move(settings: Settings) -> None:
    assert not left_behind(settings)
    assert not move_tables(settings)
    assert not settings.catalog.exists()
    settings.catalog.touch()
    assert not move_tables(settings)
    assert "no tables yet" in missing_tables(settings)


def test_check_warns_of_a_catalog_that_is_called_like_the_schema(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = home._settings
    tables = Tables(settings)
    assert (_catalog(tables).ok, _catalog(tables).warns) == (True, False)
    monkeypatch.setattr(catalog, "session_configuration", lambda *_: {"spark.sql.defaultCatalog": schema(PROJECT)})
    finding = _catalog(tables)
    assert (finding.ok, finding.warns) == (True, True)
    assert "empty namespace" in finding.found


# ---------- other readers


@pytest.mark.long
def test_what_the_page_about_tables_shows_works(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.append_reports(report("read-by-others", error="KeyError"))
    home.decide()
    monkeypatch.setenv("REDRIVE_HOME", str(home.path))
    page = (PROJECT / "docs" / "tables.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?ms)^```python\n(.*?)^```", page)
    assert len(shown) == 2
    said: dict[str, Any] = {}
    for code in shown:
        exec(code, said)
    assert {"events", "publish_results", "ticks", "deliveries", "routes"} <= set(said["tables"])
    dead = [row for row in home.decisions().values() if row["kind"] == "dead_letter"]
    assert {row["message_id"] for row in dead} == set(said["dead"]["message_id"].to_pylist())
    assert sum(count for _, count in said["by_class"]) == len(dead) > 0


def test_the_statements_on_the_page_move_a_catalog_as_a_start_does(settings: Settings, before: SparkSession) -> None:
    page = (PROJECT / "docs" / "tables.md").read_text(encoding="utf-8")
    (statements,) = re.findall(r"(?ms)^```sql\n(.*?)^```", page)
    copy = settings.home / "copy.db"
    with sqlite3.connect(settings.catalog) as file, sqlite3.connect(copy) as other:
        file.backup(other)
    sqlite3.connect(copy, isolation_level=None).executescript(statements)
    assert move_tables(settings)
    for table in ("iceberg_tables", "iceberg_namespace_properties"):
        with sqlite3.connect(copy) as by_hand, sqlite3.connect(settings.catalog) as moved:
            assert set(by_hand.execute(f"select * from {table}")) == set(moved.execute(f"select * from {table}"))


# ---------- a bare dbt


@pytest.mark.parametrize(
    ("of_before", "command", "said"),
    [
        (False, "run", "dbt seed"),
        (False, "test", "dbt seed"),
        (True, "run", "0.1.0"),
        (True, "build", "0.1.0"),
        (True, "seed", "0.1.0"),
    ],
)
def test_where_dbt_can_do_nothing_it_says_in_a_line_what_comes_first(
    home: Home, monkeypatch: pytest.MonkeyPatch, of_before: bool, command: str, said: str
) -> None:
    monkeypatch.setenv("REDRIVE_SCHEMA", "nothing_here")
    with sqlite3.connect(home.path / "catalog.db") as file:
        if of_before:
            file.execute("insert into iceberg_tables values ('redrive', '', 'ticks', 'x', 'y', 'TABLE')")
    try:
        with pytest.raises(DbtError, match=re.escape(said)) as stopped:
            # a model that has a test: dbt says nothing where there is nothing to do
            home.run(command, "publish_results" if command != "seed" else "routes")
    finally:
        with sqlite3.connect(home.path / "catalog.db") as file:
            file.execute("delete from iceberg_tables where catalog_name = 'redrive'")
    assert "Exception" not in str(stopped.value)


# ---------- asked by who may only read

ASKING = """
import sys
from typer.testing import CliRunner
from orchestration.cli.main import app
home, message = sys.argv[1:]
for asked in (
    ["sql", "select count(*) from messages"],
    ["dlq", "list", "--state", "all"],
    ["explain", message],
    ["classify", "--class", "KeyError"],
):
    done = CliRunner().invoke(app, [*asked, "--home", home])
    if done.exception is not None:
        raise done.exception
"""


def _state(home: Path) -> dict[str, tuple[int, int]]:
    return {str(path.relative_to(home)): (path.stat().st_size, path.stat().st_mtime_ns) for path in home.rglob("*")}


@pytest.mark.slow
def test_a_home_that_can_only_be_read_can_be_asked_and_is_left_as_it_is(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.append_reports(report("asked-only", error="KeyError"))
    home.decide()
    (message,) = (row["message_id"] for row in home.decisions().values() if row["original_topic"] == "asked-only")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = _state(home.path)
    for path in (home.path, *home.path.rglob("*")):
        # root may write all the same: what was written is looked at, too
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASKING, str(home.path), message],
            cwd=PROJECT,
            env={**os.environ, "REDRIVE_SPARK_MEMORY": "1g", "REDRIVE_SEEDS": str(home.path / "seeds")},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    finally:
        for path in (home.path, *home.path.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert _state(home.path) == before


@pytest.mark.parametrize("asked", [["sql", "select 1"], ["dlq", "list"]])
def test_a_home_that_is_not_there_is_not_made_by_a_question(tmp_path: Path, asked: list[str]) -> None:
    result = CliRunner().invoke(app, [*asked, "--home", str(tmp_path / "nowhere")])
    assert "no tables yet" in str(result.exception)
    assert not (tmp_path / "nowhere").exists()
