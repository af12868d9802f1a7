"""The project around the rules: what is described, what survives a run, a refresh and a seed, and who sees whose commits."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from orchestration.rules.seeds import read_seeds
from orchestration.tables.dbt import DbtError
from tests.dbt.harness import PROJECT, Home, copy_of_the_project, report

# tables that nothing replaces
RECORDS = ("events", "publish_results", "ticks", "deliveries")

# Python reads it, and so does the check: a backspace
NOT_JAVA = r"^orders[\b]"


@pytest.fixture(scope="module")
def declared(home: Home) -> dict[str, dict[str, Any]]:
    """What the project declares, by the name of each table and view that lies in the catalog."""
    nodes = json.loads((home.path / "dbt" / "manifest.json").read_text(encoding="utf-8"))["nodes"].values()
    return {
        node["name"]: node for node in nodes if node["resource_type"] in ("model", "seed") and node["config"]["materialized"] != "ephemeral"
    }


def _columns(home: Home, name: str) -> list[str]:
    """The columns of a table or a view as the catalog has them: to read a view, Spark would analyse it."""
    rows = home.spark.sql(f"describe {home.schema}.{name}").collect()
    return [row["col_name"] for row in takewhile(lambda row: row["col_name"] and not row["col_name"].startswith("#"), rows)]


def test_every_column_is_described_and_every_described_column_exists(home: Home, declared: dict[str, dict[str, Any]]) -> None:
    listed = home.spark.sql(f"show tables in {home.schema}").collect() + home.spark.sql(f"show views in {home.schema}").collect()
    # a temporary view belongs to whoever asks at the moment
    exist = {row[1]: sorted(_columns(home, row[1])) for row in listed if not row["isTemporary"]}
    described = {
        name: sorted(column["name"] for column in node["columns"].values() if column["description"].strip())
        for name, node in declared.items()
    }
    assert exist == described
    assert [name for name, node in declared.items() if not node["description"].strip()] == []


def test_describe_says_what_columns_mean(home: Home, declared: dict[str, dict[str, Any]]) -> None:
    for name in ("messages", "dead_letters", "gaps", "events", "ticks", "deliveries"):
        rows = home.spark.sql(f"describe {home.schema}.{name}").collect()
        said = {row["col_name"]: row["comment"] for row in rows}
        meant = {column["name"]: column["description"] for column in declared[name]["columns"].values()}
        assert {column: said[column] for column in meant} == meant


def test_what_people_and_the_publisher_read_is_a_contract(declared: dict[str, dict[str, Any]]) -> None:
    read = {name: node for name, node in declared.items() if "marts" in node["fqn"] or name == "ready"}
    assert {"attempts", "dead_letters", "messages", "ready"} <= read.keys()
    assert [name for name, node in read.items() if not node["config"]["contract"]["enforced"]] == []


@pytest.mark.parametrize(
    ("promised", "complaint"),
    [
        (
            "      - name: partition\n        data_type: bigint\n",
            "gaps: the column partition is of type int, and the contract in its YAML says bigint",
        ),
        ("      - name: partitions\n        data_type: int\n", "gaps: .*UNRESOLVED_COLUMN.*`partitions`"),
    ],
    ids=["type", "name"],
)
def test_a_view_that_breaks_its_contract_stops_the_run(home: Home, tmp_path: Path, promised: str, complaint: str) -> None:
    project = copy_of_the_project(tmp_path)
    contract = project / "models" / "marts" / "gaps.yml"
    kept = "      - name: partition\n        data_type: int\n"
    text = contract.read_text()
    assert kept in text
    contract.write_text(text.replace(kept, promised))
    try:
        with pytest.raises(DbtError, match=complaint):
            home.run("run", "gaps", project=project)
    finally:
        home.run("run", "gaps")


def test_the_unit_tests_beside_the_models_pass(home: Home, declared: dict[str, dict[str, Any]]) -> None:
    assert declared
    manifest = json.loads((home.path / "dbt" / "manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["unit_tests"]) > 20, "dbt succeeds if there is nothing to do"
    home.run("test", "test_type:unit")


def _commits(home: Home) -> dict[str, list[str]]:
    """All versions of each table that is only ever appended to: any commit adds one, a table made anew begins others."""
    return {
        table: [row["file"] for row in home.spark.sql(f"select file from {home.schema}.{table}.metadata_log_entries").collect()]
        for table in RECORDS
    }


@pytest.mark.parametrize(
    ("full_refresh", "models"),
    [
        pytest.param("false", RECORDS, id="a run"),
        pytest.param("true", RECORDS, id="a full refresh"),
        # half a minute each: all the views are made anew
        pytest.param("false", (), id="a run of everything", marks=pytest.mark.slow),
        pytest.param("true", (), id="a full refresh of everything", marks=pytest.mark.slow),
    ],
)
def test_a_run_with_nothing_to_decide_leaves_the_records_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch, full_refresh: str, models: tuple[str, ...]
) -> None:
    home.append_reports(report("left-alone", home.batch))
    home.decide()
    home.append_tick(home.batch)
    commits = _commits(home)
    rows = {table: len(home.read(table)) for table in RECORDS}
    assert rows["events"] > 0
    assert rows["deliveries"] > 0
    monkeypatch.setenv("DBT_FULL_REFRESH", full_refresh)
    home.run("run", *models)
    assert _commits(home) == commits
    assert {table: len(home.read(table)) for table in RECORDS} == rows


@pytest.mark.slow
def test_columns_that_a_table_of_before_lacks_are_added(home: Home) -> None:
    home.append_reports(report("before-an-update", error="KeyError"))
    home.decide()
    columns = set(home.spark.table(f"{home.schema}.deliveries").columns)
    (message, *_) = (row["message_id"] for row in home.read("deliveries"))
    home.spark.sql(f"alter table {home.schema}.deliveries drop columns passed_over, header_profile, privacy")
    # the views, too: they name columns by their places
    home.run("run")
    assert set(home.spark.table(f"{home.schema}.deliveries").columns) == columns
    home.append_reports(report("after-an-update"))
    home.decide()
    assert message in {row["message_id"] for row in home.decisions().values()}
    assert "after-an-update" in {row["original_topic"] for row in home.decisions().values()}
    # what was decided before there was a choice goes as it went then, and shows all
    (dead,) = (row for row in home.read("ready") if row["original_topic"] == "before-an-update")
    assert [header["key"] for header in dead["dead_letter_headers"]][:2] == ["dlq-reason", "dlq-error-class"]
    assert [row["value"] for row in home.read("decisions") if row["original_topic"] == "before-an-update"] == [b"value"]


def test_seeds_come_through_as_they_stand_in_their_files(home: Home, seeds: Path) -> None:
    assert seeds.is_absolute()
    assert not seeds.is_relative_to(PROJECT)
    rows = [
        ["it's", "an apostrophe"],
        ["^orders[.]\\d+\\n$", "a backslash, and a comma"],
        ['"quoted"', ""],
        ["ä😀", "'); drop table events; --"],
        ["17", "true"],
    ]
    with (seeds / "transparent_wrappers.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["error_class", "why"], *rows])
    files = {path: path.read_bytes() for path in seeds.iterdir()}
    home.run("seed")
    assert {path: path.read_bytes() for path in seeds.iterdir()} == files
    loaded = sorted([row["error_class"], row["why"] or ""] for row in home.read("transparent_wrappers"))
    assert loaded == sorted(rows)


@pytest.mark.slow
def test_dbt_reads_the_same_text_in_a_seed_as_the_check(home: Home, seeds: Path) -> None:
    """Blanks around a value, a line break inside one, text that looks like a number or a truth value, and empty lines."""
    for path in (PROJECT / "dbt_project" / "seeds").glob("*.csv"):
        header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
        with (seeds / path.name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *([f"  {cell}\t" for cell in row] for row in rows)])
    routes = list(csv.reader(io.StringIO((seeds / "routes.csv").read_text(encoding="utf-8"))))
    with (seeds / "routes.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [[*routes[0][:7], "owner", "runbook"], *([*row[:7], " 007", "true "] for row in routes[1:])]
        )
    with (seeds / "transparent_wrappers.csv").open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["a.Wrapper", "two\nlines\u2028or three"], ["\u00a0 b.Wrapper", "1.10 "]])
    for name in ("error_classes.csv", "dialects.csv", "transparent_wrappers.csv"):
        with (seeds / name).open("a", encoding="utf-8") as file:
            file.write("\n\n")
    home.load_rules()
    for name, checked_rows in read_seeds(seeds).rows.items():
        columns = list(checked_rows[0].values) if checked_rows else []
        checked = sorted([row[column] for column in columns] for row in checked_rows)
        # no value, or true and false, where the table has another type than text
        loaded = sorted(
            [
                "" if row[column] is None else str(row[column]).lower() if isinstance(row[column], bool) else str(row[column])
                for column in columns
            ]
            for row in home.read(name)
        )
        assert loaded == checked, name


@pytest.mark.parametrize(
    ("seed", "row"),
    [
        ("routes", {"topic": NOT_JAVA, "retry_policy": "default", "publish_policy": "patient", "retry_topic": "{topic}-retry"}),
        *(
            pytest.param(seed, row, marks=pytest.mark.slow)
            for seed, row in (
                ("error_rules", {"topic": NOT_JAVA, "error_class": "a.B", "kind": "fatal"}),
                ("dead_letter_topics", {"topic": NOT_JAVA, "error_class": "a.B", "dead_letter_topic": "{topic}.dlq"}),
                ("sources", {"source": "another", "topic": "another", "dialect": "redrive", "speaks_for": f"orders {NOT_JAVA}"}),
            )
        ),
    ],
)
def test_a_topic_s_expression_that_java_doesn_t_read_is_refused_when_the_rules_are_loaded(
    home: Home, seeds: Path, seed: str, row: dict[str, str]
) -> None:
    """And not by a decide run, days later, when it is tried on the first topic."""
    path = seeds / f"{seed}.csv"
    header = next(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    defaults = {"consumer_group": "*", "error_kind": "*", "source": "*", "dead_letter_topic": "{topic}.dlq", "start": "earliest"}
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow([{**defaults, **row}.get(name, "") for name in header])
    with pytest.raises(DbtError, match=r"INVALID_PARAMETER_VALUE\.PATTERN"):
        home.load_rules()


@pytest.mark.slow
def test_empty_seeds_are_empty_tables_and_rules_like_any_others(home: Home, seeds: Path) -> None:
    for path in seeds.iterdir():
        path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    home.load_rules()
    assert home.read("error_rules") == []
    assert home.spark.table(f"{home.schema}.error_rules").columns[0] == "error_class"
    (rules,) = home.read("rules")
    assert rules["routes"] == []


OTHER_PROCESS = """
import sys
from pathlib import Path
from orchestration.settings import load_settings
from orchestration.tables.spark import start_session
home, project = map(Path, sys.argv[1:])
start_session(load_settings(home=home, seeds=home / "seeds", project=project)).sql("insert into scratch.seen values (2)")
"""


@pytest.mark.slow
def test_a_session_sees_what_another_process_commits_meanwhile(home: Home) -> None:
    home.spark.sql("create namespace if not exists scratch")
    home.spark.sql("create table scratch.seen (number int) using iceberg")
    home.spark.sql("insert into scratch.seen values (1)")
    assert home.spark.table("scratch.seen").count() == 1
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(home.path), str(PROJECT)],
        cwd=PROJECT,
        env={**os.environ, "REDRIVE_SPARK_MEMORY": "1g"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert home.spark.table("scratch.seen").count() == 2
    home.spark.sql("drop table scratch.seen")
