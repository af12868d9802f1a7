"""Tables that the version before made are brought to this version when a loop starts; those of a newer version are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pyspark.sql import SparkSession

from orchestration.clock import LoopClock
from orchestration.loop import preparation
from orchestration.loop.health import Reason
from orchestration.loop.issued import IssuedCommands
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.preparation import prepare_tables
from orchestration.loop.state import LoopState
from orchestration.loop.stored import Stored
from orchestration.loop.window import SendWindow
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.selections import DlqError
from orchestration.settings import Settings, load_settings
from orchestration.status import Status
from orchestration.tables import migration
from orchestration.tables.catalog import CatalogError
from orchestration.tables.dbt import DbtError, sql_digest
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.maintenance import MaintenanceError, maintain
from orchestration.tables.migration import TABLE_VERSION, migrate_tables, table_version, unreadable_tables
from orchestration.tables.query import QueryError, Tables
from orchestration.tables.rows import collected
from tests.dbt.harness import PROJECT, Home
from tests.dbt.test_catalog import _session

# As version 1 made them.
TICKS = """
    tick bigint, kind string, generation bigint, instance string, watermark bigint, floor timestamp, loop_time timestamp,
    positions map<string, bigint>,
    set_aside map<string, struct<until: timestamp, pause_ms: bigint, floor: timestamp, why: string>>,
    gates map<string, struct<
        closed_at: timestamp, opened_at: timestamp, error_class: string, probes: int,
        probe: struct<
            delivery_id: string, due_at: timestamp, sent_at: timestamp, consumer_group: string, topic: string,
            partition: int, offset: bigint
        >,
        next_probe: timestamp, floor: timestamp
    >>,
    settled array<struct<consumer_group: string, topic: string, partition: int, offset: bigint>>,
    awaited array<struct<consumer_group: string, topic: string, partition: int, sent: bigint, settled: bigint>>,
    slots int, counts map<string, bigint>, step_ms map<string, bigint>, batch bigint, recorded_at timestamp
"""
PROBE = """named_struct(
    'delivery_id', 'm#1', 'due_at', timestamp '2026-03-01 11:00:00', 'sent_at', timestamp '2026-03-01 11:00:01',
    'consumer_group', 'billing', 'topic', 'orders-billing-retry', 'partition', 0, 'offset', 7L
)"""
GATES = f"""map(
        'billing:blocked', named_struct('closed_at', timestamp '2026-03-01 10:00:00', 'opened_at', cast(null as timestamp),
            'error_class', 'E', 'probes', 2, 'probe', {PROBE},
            'next_probe', timestamp '2026-03-01 10:01:00', 'floor', timestamp '2026-03-01 09:00:00'),
        'billing:free', named_struct('closed_at', timestamp '2026-03-01 10:00:00', 'opened_at', timestamp '2026-03-01 11:30:00',
            'error_class', 'E', 'probes', 1, 'probe', null,
            'next_probe', timestamp '2026-03-01 10:01:00', 'floor', timestamp '2026-03-01 09:00:00')
    )"""
TICK = f"""
    1L, 'tick', 3L, 'default', 41L, timestamp '2026-03-01 12:00:00', timestamp '2026-03-01 12:00:00',
    map('announced', 40L, 'awaited', 39L),
    map('gone', named_struct(
        'until', timestamp '2026-03-01 12:00:04', 'pause_ms', 4000L, 'floor', timestamp '2026-03-01 11:00:00', 'why', 'x'
    )),
    {GATES},
    array(), array(), 2, map('gates', 1L), map('fold', 700L), 42L, timestamp '2026-03-01 12:00:00'
"""
DELIVERIES = "cause string, batch bigint, fold bigint, life int, gate string, delivery_id string, due_at timestamp"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a home of this test's own."""
    return load_settings(home=tmp_path, project=PROJECT)


@pytest.fixture
def before(home: Home, settings: Settings) -> SparkSession:
    """A session on the tables of version 1, with a row in each."""
    session = _session(home, settings, "lake")
    session.sql("create namespace redrive")
    session.sql(f"create table redrive.ticks ({TICKS}) using iceberg")
    session.sql(f"insert into redrive.ticks select {TICK}")
    session.sql(f"create table redrive.deliveries ({DELIVERIES}) using iceberg partitioned by (hours(due_at))")
    session.sql("insert into redrive.deliveries values ('id/0/1/0', 1, 5, 2, 'billing:blocked', 'm#1', timestamp '2026-03-01 11:00:00')")
    _create_others(session)
    return session


def _create_others(session: SparkSession) -> None:
    for table in ("events", "publish_results"):
        session.sql(f"create table redrive.{table} (delivery_id string, batch bigint) using iceberg")
        session.sql(f"insert into redrive.{table} values ('m#1', 1)")


def _columns(session: SparkSession, table: str) -> list[str]:
    return list(session.table(f"redrive.{table}").columns)


# A column alone needs no new table version: dbt adds it when a start runs the models.
ADDED_BY_DBT = {
    "unrecorded_since": "timestamp",
    "outboxes": "map<string, struct<written: bigint, decided: bigint, adopts: boolean>>",
}


def test_tables_of_an_earlier_version_keep_their_rows_under_the_names_of_this_one(settings: Settings, before: SparkSession) -> None:
    assert "version 1" in str(unreadable_tables(settings, before, "redrive"))
    migrate_tables(settings, before, "redrive")
    described = yaml.safe_load((PROJECT / "models" / "ledgers" / "ticks.yml").read_text(encoding="utf-8"))["models"][0]["columns"]
    assert [(column.name, column.dataType.simpleString()) for column in before.table("redrive.ticks").schema] == [
        (column["name"], column["data_type"].replace(": ", ":").replace(", ", ","))
        for column in described
        if column["name"] not in ADDED_BY_DBT
    ]
    (decision,) = collected(before.table("redrive.deliveries"))
    assert (decision["input_id"], decision["decide_run"], decision["life_cycle"], decision["breaker_key"]) == (
        "id/0/1/0", 5, 2, "billing:blocked",
    )  # fmt: skip
    assert {table: table_version(before, f"redrive.{table}") for table in ("ticks", "events", "publish_results", "deliveries")} == (
        dict.fromkeys(("ticks", "events", "publish_results", "deliveries"), TABLE_VERSION)
    )
    assert unreadable_tables(settings, before, "redrive") is None
    comments = {row["col_name"]: row["comment"] for row in before.sql("describe redrive.deliveries").collect()}
    assert "circuit breaker" in comments["breaker_key"]


def test_what_was_a_closed_gate_is_an_open_circuit_breaker(settings: Settings, before: SparkSession) -> None:
    migrate_tables(settings, before, "redrive")
    (row,) = collected(before.table("redrive.ticks"))
    state = LoopState.from_row(row)
    blocked, free = state.breakers["billing:blocked"], state.breakers["billing:free"]
    assert (blocked.is_open, blocked.opened_at.hour, blocked.closed_at, blocked.probes) == (True, 10, None, 2)
    assert blocked.probe is not None
    assert (blocked.probe.offset, blocked.probe.topic) == (7, "orders-billing-retry")
    assert free.closed_at is not None
    assert (free.is_open, free.opened_at.hour, free.closed_at.hour) == (False, 10, 11)
    assert (state.feed_batch, state.awaited_batch, list(state.window.paused)) == (40, 39, ["gone"])


def test_a_second_start_changes_nothing_and_one_that_ended_halfway_is_gone_on_with(
    settings: Settings, before: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate = migration._migrate

    def dies(spark: SparkSession, name: str, version: int, table: str, descriptions: dict[str, str]) -> None:
        if table == "deliveries":
            raise KeyboardInterrupt
        migrate(spark, name, version, table, descriptions)

    with monkeypatch.context() as patch:
        patch.setattr(migration, "_migrate", dies)
        with pytest.raises(KeyboardInterrupt):
            migrate_tables(settings, before, "redrive")
    assert "gate" in _columns(before, "deliveries")
    assert unreadable_tables(settings, before, "redrive") is not None
    migrate_tables(settings, before, "redrive")
    assert "breaker_key" in _columns(before, "deliveries")
    (row,) = collected(before.table("redrive.ticks"))
    assert LoopState.from_row(row).breakers["billing:blocked"].is_open

    def versions() -> dict[str, list[str]]:
        log = "select file from redrive.{}.metadata_log_entries"
        tables = ("ticks", "events", "publish_results", "deliveries")
        return {table: [row["file"] for row in before.sql(log.format(table)).collect()] for table in tables}

    after_one = versions()
    migrate_tables(settings, before, "redrive")
    assert versions() == after_one


def test_a_start_goes_on_from_the_state_that_version_2_has_left(home: Home, settings: Settings) -> None:
    session = _session(home, settings, "lake")
    session.sql("create namespace redrive")
    columns = TICKS.replace("set_aside", "paused_destinations").replace("gates map", "circuit_breakers map")
    session.sql(f"create table redrive.ticks ({columns}) using iceberg tblproperties ('{migration.PROPERTY}' = '2')")
    row_of_2 = TICK.replace(GATES, "null").replace(
        "map('announced', 40L, 'awaited', 39L)",
        "map('AAAAAAAAAAAAAAAAAAAAAA/0', 12L, 'source:reports', 1L, 'command:0b9c', 5L, 'commands', 30L, "
        "'decision_feed', 40L, 'awaited', 39L)",
    )
    session.sql(f"insert into redrive.ticks select {row_of_2}")
    session.sql(f"create table redrive.deliveries ({DELIVERIES}) using iceberg partitioned by (hours(due_at))")
    _create_others(session)
    migrate_tables(settings, session, "redrive")
    assert table_version(session, "redrive.ticks") == TABLE_VERSION
    (row,) = collected(session.table("redrive.ticks"))
    state = LoopState.from_row(row)
    assert state.offsets == SourceOffsets({"AAAAAAAAAAAAAAAAAAAAAA/0": 12}, frozenset({"reports"}))
    assert (state.commands, state.feed_batch, state.awaited_batch) == (IssuedCommands(30, {"0b9c": 5}), 40, 39)
    assert state.window.paused["gone"].reason == Reason("x")
    # what this version writes is read back as it was, with the columns that dbt adds before a start writes
    session.sql(f"alter table redrive.ticks add columns ({', '.join(f'{name} {kind}' for name, kind in ADDED_BY_DBT.items())})")
    ledgers = Ledgers(session, "redrive")
    ledgers.read_end()
    ledgers.generation = state.generation + 1
    stored = Stored(session, "redrive", ledgers, LoopClock(None))
    paused = state.window.paused["gone"]
    written = replace(state, window=SendWindow(state.window.floor, {"gone": replace(paused, reason=Reason("y", "_TRANSPORT"))}))
    stored.append(written)
    last = stored.last_row()
    assert last is not None
    assert replace(LoopState.from_row(last), loop_time=state.loop_time, generation=state.generation) == written


def test_nothing_is_changed_under_a_running_loop(settings: Settings, before: SparkSession) -> None:
    of_another = Status(
        state="running", generation=1, instance="default", pid=os.getppid(), tick=1, at="", watermark=1, batch=1, floor="", next_due=None
    )
    settings.status_file.write_text(json.dumps(asdict(of_another)))
    with pytest.raises(CatalogError, match=str(os.getppid())):
        migrate_tables(settings, before, "redrive")
    assert "gates" in _columns(before, "ticks")


def test_a_home_without_tables_has_none_to_change(home: Home, settings: Settings) -> None:
    migrate_tables(settings, _session(home, settings, "lake"), "redrive")


# ---------- tables of another version, through all doors


@pytest.fixture
def of_version(home: Home, request: pytest.FixtureRequest) -> Iterator[None]:
    """The tables of the home say that they have another version."""
    name = f"{home.schema}.deliveries"

    def say(version: int) -> None:
        home.spark.sql(f"alter table {name} set tblproperties ('{migration.PROPERTY}' = '{version}')")

    assert table_version(home.spark, name) == TABLE_VERSION, "made by this version"
    say(request.param)
    yield
    say(TABLE_VERSION)


@pytest.mark.usefixtures("of_version")
@pytest.mark.parametrize(
    ("of_version", "advice"),
    [(TABLE_VERSION + 1, "a newer version of redrive has changed them"), (1, "`redrive run` or `redrive tick`")],
    indirect=["of_version"],
)
def test_whoever_asks_or_writes_refuses_tables_of_another_version_and_says_what_to_do(home: Home, advice: str) -> None:
    settings = home._settings
    with pytest.raises(QueryError, match=advice):
        Tables(settings).select("select 1", 1)
    with pytest.raises(DlqError, match=advice):
        DeadLetters(settings)
    with pytest.raises(MaintenanceError, match=advice):
        maintain(settings)
    with pytest.raises(DbtError, match=advice):
        home.run("run", "ready")


def test_views_are_made_anew_if_the_tables_are_those_of_a_backup(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(preparation, "make_tables", lambda *_: made.append("views"))
    settings = home._settings.model_copy(update={"home": tmp_path})
    # this home has seen the SQL of today
    settings.project_digest.write_text(sql_digest(settings))
    monkeypatch.setattr(preparation, "migrate_tables", lambda *_: None)
    rules = SimpleNamespace(check=lambda: None, seeds=SimpleNamespace(digest="d"), loaded_hash=lambda: "h")
    for of_backup, expected in (("an older one", 1), (None, 1), ("an older one", 2)):
        if of_backup:
            migration.note_made_of(home.spark, home.schema, of_backup)
        prepare_tables(settings, home.spark, home.schema, home._dbt, rules)  # type: ignore[arg-type]
        assert len(made) == expected


@pytest.mark.usefixtures("of_version")
@pytest.mark.parametrize("of_version", [TABLE_VERSION + 1], indirect=True)
def test_a_loop_refuses_tables_of_a_newer_version(home: Home) -> None:
    with pytest.raises(CatalogError, match="a newer version of redrive has changed them") as refused:
        prepare_tables(home._settings, home.spark, home.schema, home._dbt, rules=None)  # type: ignore[arg-type]
    assert refused.value.exit_code == 2
    assert str(home.path) in str(refused.value)
