"""Decide runs: with settings and rules of their own, none twice, none wrong, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from orchestration.settings import load_settings
from orchestration.tables.dbt import DbtError
from orchestration.tables.decide_statements import DecideError, DecideRunner
from orchestration.tables.spark import start_session
from tests.dbt.decisions_after import decisions_after
from tests.dbt.harness import PROJECT, Home, copy_of_the_project, report

pytestmark = pytest.mark.long


def test_a_decide_run_has_its_own_settings_whatever_others_were_used_in_the_process(home: Home) -> None:
    # these name no protected topic
    start_session(load_settings(home=home.path, project=PROJECT))
    (input_id,) = home.append_reports(report("into-a-group", 900, group="forbidden"))
    home.decide()
    assert home.decisions()[input_id]["reason"] == "destination_is_internal"


@pytest.mark.slow
def test_no_batch_is_decided_twice_whatever_the_rules_are_by_then(home: Home, seeds: Path) -> None:
    """A decide run whose commit went through, of which nobody was told, is repeated under other rules."""
    home.decide()
    before = home.batch
    (input_id,) = home.append_reports(report("decided-once", 1))
    home.decide()
    policies = seeds / "retry_policies.csv"
    policies.write_text(policies.read_text().replace("initial=1s, factor=2, max=60s", "initial=2h, factor=2, max=9h"))
    home.load_rules()
    already = f"batches up to {home.batch} are decided already, not just those up to {before}"
    with pytest.raises(DbtError, match=already):
        home.decide(watermark=before, upto=home.batch)
    with pytest.raises(DecideError, match=already):
        DecideRunner(home.spark, home.schema, home._dbt).run(before, home.batch, None)
    (later,) = home.append_reports(report("decided-once", 2))
    home.decide()
    rows = {row["input_id"]: row for row in home.read("deliveries") if row["batch"] > before}
    assert len([row for row in home.read("deliveries") if row["batch"] > before]) == 2
    assert rows[input_id]["due_at"] < rows[input_id]["recorded_at"] + timedelta(hours=1) < rows[later]["due_at"]


@pytest.mark.slow
def test_of_two_runs_at_once_under_different_rules_one_is_refused(home: Home, tmp_path: Path) -> None:
    home.decide()
    before = home.batch
    (input_id,) = home.append_reports(report("decided-at-once"))
    home.decide()
    # what the other decide run decides: by its rules it is due in another hour. It commits when this one has looked at everything already
    (row,) = (row for row in home.read("deliveries") if row["batch"] > before)
    other = {
        **row.asDict(),
        "decide_run": 7,
        "due_at": row["due_at"] + timedelta(hours=3),
        "due_hour": row["due_hour"] + timedelta(hours=3),
    }
    schema = home.spark.table(f"{home.schema}.deliveries").schema
    home.spark.createDataFrame([tuple(other[name] for name in schema.names)], schema).createOrReplaceTempView("other_run")
    home.forget(before)
    project = copy_of_the_project(tmp_path)
    slots = project / "macros" / "decide" / "read_slots.sql"
    hook = f"{{%- do run_query('insert into {home.schema}.deliveries by name select * from other_run') -%}}"
    slots.write_text(slots.read_text().replace("{{ return(slots) }}", f"{hook}{{{{ return(slots) }}}}"))
    with pytest.raises(DbtError, match="Found conflicting files that can contain records matching"):
        home.decide(project=project)
    home.spark.catalog.dropTempView("other_run")
    (ready,) = (row for row in home.read("ready") if row["batch"] > before)
    assert ready["due_at"] == home.decisions()[input_id]["due_at"] == other["due_at"]
    assert len(decisions_after(home, before)) == 1


def test_a_decide_run_with_nothing_to_decide_writes_nothing(home: Home) -> None:
    home.decide()
    snapshots = home.spark.table(f"{home.schema}.deliveries.snapshots").count()
    home.append_tick(home.batch)
    home.decide()
    home.decide()
    assert home.spark.table(f"{home.schema}.deliveries.snapshots").count() == snapshots


def test_a_decide_run_leaves_nothing_in_sparks_memory(home: Home) -> None:
    home.decide()
    home.append_reports(report("kept-in-memory"))
    kept = home.spark.sparkContext._jsc.getPersistentRDDs
    before = set(kept())
    home.decide()
    assert set(kept()) <= before
    assert not home.spark.catalog.tableExists("__dbt__cte__inputs_gathered")
    assert not home.spark.catalog.tableExists("__dbt__cte__deliveries")


@pytest.fixture
def broken_rule(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the project in which one rule ends otherwise."""

    def break_it(ending: str) -> Path:
        project = copy_of_the_project(tmp_path)
        rule = project / "models" / "retry" / "2_classify" / "errors_classified.sql"
        text = rule.read_text()
        assert text.endswith("select * from classified\n")
        rule.write_text(text.removesuffix("select * from classified\n") + ending)
        return project

    return break_it


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        pytest.param("select * from classified where original_offset <> 1", "the decide step made 0 decisions for input", id="drops one"),
        pytest.param(
            "select * from classified union all select * from classified where original_offset = 1",
            "the decide step made 2 decisions for input",
            id="doubles one",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rule_that_loses_or_doubles_an_input_stops_the_decide_step(
    home: Home, broken_rule: Callable[[str], Path], ending: str, complaint: str
) -> None:
    home.decide()
    before = home.batch
    input_ids = home.append_reports(report(f"broken-{before}", 0), report(f"broken-{before}", 1))
    with pytest.raises(DbtError, match=f"{complaint} {input_ids[1]}"):
        home.decide(project=broken_rule(ending))
    assert decisions_after(home, before) == []
    home.decide()
    assert len(decisions_after(home, before)) == 2


@pytest.mark.slow
def test_rules_that_changed_meanwhile_stop_the_decide_step(home: Home) -> None:
    home.decide()
    before = home.batch
    home.append_reports(report("changed"))
    with pytest.raises(DbtError, match="the rules changed since the loop loaded them"):
        home.decide(rules_hash="0" * 64)
    assert decisions_after(home, before) == []
    home.decide()
    (row,) = (row for row in home.read("deliveries") if row["batch"] > before)
    home.forget(before)
    home.decide(rules_hash=row["rules_hash"])
    assert len(decisions_after(home, before)) == 1


@pytest.mark.slow
def test_a_table_that_was_made_anew_is_read_by_the_run_after_the_one_that_finds_out(home: Home) -> None:
    home.append_reports(report("before-it"))
    home.decide()
    home.spark.sql(f"drop table {home.schema}.rules purge")
    home.load_rules()
    (input_id,) = home.append_reports(report("after-it"))
    with pytest.raises(DecideError, match="UUID"):
        home.decide()
    assert input_id not in home.decisions()
    home.decide()
    assert home.decisions()[input_id]["kind"] == "retry"
