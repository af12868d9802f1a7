"""What Dagster is given: loaded in seconds, without Spark, without Kafka, and as tests/dagster/graph.txt has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import dagster as dg
import pytest

import orchestration.definitions
from orchestration.dagster.assets import what_hinders
from orchestration.dagster.dbt_tests import dbt_tests
from orchestration.dagster.graph import owners_of, read_graph, topological, without_cycles
from orchestration.dagster.manifest import ManifestError, load_manifest
from orchestration.dagster.outboxes import outbox_assets, outbox_checks, outbox_key
from orchestration.dagster.resource import Redrive
from orchestration.definitions import definitions
from orchestration.rules.seed_rows import Row
from orchestration.settings import load_settings
from orchestration.status import Entry
from tests.dagster.graph_text import graph_text

PROJECT = Path(__file__).parents[2]
SNAPSHOT = PROJECT / "tests" / "dagster" / "graph.txt"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose manifest is parsed once for all tests here."""
    path = tmp_path_factory.mktemp("home")
    load_manifest(load_settings(home=path, project=PROJECT))
    return path


@pytest.fixture(scope="module")
def loaded(home: Path) -> dg.Definitions:
    """The definitions over the project."""
    return definitions(load_settings(home=home, project=PROJECT))


LOADING = """
import json, sys
from orchestration.definitions import redrive
jobs = [job.name for job in redrive().resolve_all_job_defs()]
print(json.dumps({"jobs": jobs, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def test_loading_imports_neither_spark_nor_kafka(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING],
        cwd=PROJECT,
        env={**os.environ, "REDRIVE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"tick", "shift", "report", "maintenance"} <= set(found["jobs"])
    assert {"pyspark", "py4j", "confluent_kafka", "matplotlib"} & set(found["modules"]) == set()


def test_the_graph_is_the_one_on_record(loaded: dg.Definitions) -> None:
    if os.environ.get("UPDATE_GRAPH"):
        SNAPSHOT.write_text(graph_text(loaded), encoding="utf-8")
    meant = "if this change is meant: UPDATE_GRAPH=1 uv run pytest tests/unit/test_definitions.py, and commit tests/dagster/graph.txt"
    assert graph_text(loaded) == SNAPSHOT.read_text(encoding="utf-8"), meant


def _groups_before(loaded: dg.Definitions) -> dict[str, set[str]]:
    """The groups that each group reads."""
    graph = loaded.resolve_asset_graph()
    group = {key: graph.get(key).group_name for key in graph.get_all_asset_keys()}
    before: dict[str, set[str]] = {name: set() for name in group.values()}
    for key, name in group.items():
        before[name] |= {group[parent] for parent in graph.get(key).parent_keys} - {name}
    return before


def test_groups_form_no_cycle(loaded: dg.Definitions) -> None:
    # each group is drawn as one box, and by default closed: with a cycle of them an arrow runs back across all others
    order = topological(_groups_before(loaded))
    flow = ["kafka_in", "intake", "decide", "publish", "kafka_out"]
    assert [name for name in order if name in flow] == flow


def test_the_page_draws_the_groups_as_they_are(loaded: dg.Definitions) -> None:
    drawn = re.findall(r"^ +(\w+) --> (\w+)$", (PROJECT / "docs" / "dagster.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(drawn) == {(before, name) for name, found in _groups_before(loaded).items() for before in found}


def test_each_outbox_is_an_asset_with_a_check(home: Path) -> None:
    rows = [Row(2, {"outbox": name, "connection": "shop", "table": name, "profile": "eventferry"}) for name in ("one", "two")]
    keys = [dg.AssetKey(["outbox", name]) for name in ("one", "two")]
    graph = read_graph(load_manifest(load_settings(home=home, project=PROJECT)), (), [outbox_key(row) for row in rows])
    (events,) = (spec for spec in graph.loop if spec.key == dg.AssetKey("events"))
    assert {*keys} <= {dep.asset_key for dep in events.deps}
    checks = dg.Definitions(assets=outbox_assets(rows), asset_checks=outbox_checks(rows), resources={"redrive": Redrive()})
    assert {(check.asset_key, check.name) for check in checks.resolve_asset_graph().asset_check_keys} == {(key, "keeps_up") for key in keys}
    assert outbox_checks([]) == []


def test_everything_is_described(loaded: dg.Definitions) -> None:
    graph = loaded.resolve_asset_graph()
    assert [key.to_user_string() for key in graph.get_all_asset_keys() if not (graph.get(key).description or "").strip()] == []
    checks = [check for check in graph.asset_check_keys if not (graph.get_check_spec(check).description or "").strip()]
    assert checks == []


def test_nothing_starts_by_itself(loaded: dg.Definitions) -> None:
    schedules = {schedule.name: schedule.default_status for schedule in loaded.schedules or ()}
    assert set(schedules.values()) == {dg.DefaultScheduleStatus.STOPPED}
    assert not loaded.sensors


@pytest.mark.parametrize(
    ("reads", "before", "earlier"),
    [
        pytest.param(
            {
                "events": [],
                "publish_results": [],
                "ticks": [],
                "deliveries": ["events", "publish_results", "ticks"],
                "ready": ["deliveries"],
                "bulk_open": ["deliveries"],
                "named_deliveries": ["events"],
            },
            {"deliveries": {"events"}, "publish_results": {"ready", "bulk_open", "named_deliveries"}},
            {"deliveries": ("publish_results", "ticks")},
            id="the wheel reads the results of earlier ticks",
        ),
        pytest.param(
            {"events": [], "publish_results": [], "ticks": [], "deliveries": ["between"], "between": ["ticks"], "ready": ["deliveries"]},
            {"between": set(), "deliveries": {"between"}},
            {"between": ("ticks",)},
            id="a model above the wheel, too",
        ),
        pytest.param(
            {
                "events": [],
                "publish_results": [],
                "ticks": [],
                "deliveries": ["events"],
                "ready": ["deliveries"],
                "mart": ["publish_results"],
            },
            {"mart": {"publish_results"}},
            {},
            id="a mart reads what this tick wrote",
        ),
    ],
)
def test_the_loop_closes_in_the_ledgers_only(
    reads: dict[str, list[str]], before: dict[str, set[str]], earlier: dict[str, tuple[str, ...]]
) -> None:
    found, read_earlier = without_cycles(reads)
    assert {name: found[name] for name in before} == before
    assert read_earlier == earlier
    order = topological(found)
    assert [(name, up) for name, upstream in found.items() for up in upstream if order.index(up) > order.index(name)] == []


def test_a_manifest_is_parsed_when_the_project_has_changed_and_else_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[list[str]] = []
    settings = load_settings(home=home, project=PROJECT)
    settings.parsed_project.parent.mkdir(exist_ok=True)
    settings.parsed_project.write_bytes(b"what the loop has parsed")

    def parse(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        parsed.append(arguments)
        begins_with = Path(arguments[arguments.index("--target-path") + 1]) / settings.parsed_project.name
        assert begins_with.read_bytes() == b"what the loop has parsed"
        return subprocess.CompletedProcess(arguments, 1, "", "no such model")

    monkeypatch.setattr(subprocess, "run", parse)
    load_manifest(settings)
    assert parsed == []
    monkeypatch.setenv("REDRIVE_SCHEMA", "another")
    with pytest.raises(ManifestError, match="no such model"):
        load_manifest(settings)
    assert len(parsed) == 1


def test_each_of_dbt_s_tests_is_a_check(loaded: dg.Definitions, home: Path) -> None:
    manifest = load_manifest(load_settings(home=home, project=PROJECT))
    tests = {node["name"] for node in manifest["nodes"].values() if node["resource_type"] == "test"}
    checks = {check.name: check.asset_key.to_user_string() for check in loaded.resolve_asset_graph().asset_check_keys}
    assert len(tests) > 50
    assert tests <= checks.keys()
    assert checks["assert_nothing_is_sent_early"] == "publish_results"
    assert checks["unique_sources_source"] == "sources"


def test_a_test_of_nothing_that_is_an_asset_is_named(home: Path) -> None:
    manifest = load_manifest(load_settings(home=home, project=PROJECT))
    with pytest.raises(LookupError, match="assert_every_event_has_one_decision: it reads events, decisions; let it read one"):
        dbt_tests({"nodes": {"x": manifest["nodes"]["test.redrive.assert_every_event_has_one_decision"]}}, [dg.AssetKey("another")])


@pytest.mark.parametrize(
    ("owner", "owners"),
    [
        ("ada@example.com", ("ada@example.com",)),
        ("ops@acme.internal", ("team:ops@acme.internal",)),
        ("jörg@acme.example", ("team:jörg@acme.example",)),
        ("team:orders", ("team:orders",)),
        ("team:", ()),
        ("", ()),
    ],
)
def test_every_owner_has_a_form_that_dagster_takes(owner: str, owners: tuple[str, ...]) -> None:
    assert owners_of([cast(Row, {"owner": owner})]) == owners
    dg.AssetSpec("a", owners=owners)


@pytest.mark.long
def test_the_owners_of_routes_own_what_has_died(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # dbt's manifest is the same for other rows of a seed, but would be parsed again
    manifest = load_manifest(load_settings(home=home, project=PROJECT))
    monkeypatch.setattr(orchestration.definitions, "load_manifest", lambda _: manifest)
    seeds = shutil.copytree(PROJECT / "dbt_project" / "seeds", tmp_path / "seeds")
    (seeds / "routes.csv").write_text(
        "topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic,owner\n"
        "*,*,*,default,patient,{topic}-{group}-retry,{topic}.dlq,\n"
        "orders,*,*,default,patient,{topic}-{group}-retry,{topic}.dlq,team orders\n"
        "bills,*,*,default,patient,{topic}-{group}-retry,{topic}.dlq,ada@example.com\n",
        encoding="utf-8",
    )
    graph = definitions(load_settings(home=home, project=PROJECT, seeds=seeds)).resolve_asset_graph()
    owners = {key.to_user_string(): sorted(graph.get(key).owners) for key in graph.get_all_asset_keys()}
    assert owners["dead_letters"] == owners["dlq_topics"] == ["ada@example.com", "team:team orders"]
    assert owners["events"] == []
    # what is wrong with a seed `check` says: the graph is shown all the same
    (seeds / "routes.csv").write_text("no,seed\n", encoding="utf-8")
    graph = definitions(load_settings(home=home, project=PROJECT, seeds=seeds)).resolve_asset_graph()
    assert list(graph.get(dg.AssetKey("dead_letters")).owners) == []


def test_a_destination_that_takes_nothing_fails_no_run() -> None:
    missing = Entry("destination", "orders.dlq", "no such topic")
    assert what_hinders([missing]) == ""
    assert what_hinders([missing, Entry("kafka", "", "no answer")]) == "kafka: no answer"
