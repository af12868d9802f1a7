"""What `redrive check` finds in seeds. Which topics it makes is asked of the SQL: tests/dbt/test_routing.py."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from orchestration.rules.check import _permissions
from orchestration.rules.seeds import Row, Seeds
from orchestration.rules.topic_patterns import speaks_for_all
from orchestration.settings import Settings, load_settings

SEEDS = Path(__file__).parents[2] / "dbt_project" / "seeds"


@pytest.fixture
def settings(pytestconfig: pytest.Config, tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, project=pytestconfig.rootpath, decisions_topic="told", gates_topic="closed.gates")


def seeds(*sources: dict[str, str], routes: tuple[dict[str, str], ...] = ({},), classes: tuple[dict[str, str], ...] = ()) -> Seeds:
    source = {"source": "failures", "topic": "failures", "consumer_group": "", "speaks_for": "orders", "adopt": ""}
    route = {"topic": "*", "consumer_group": "*", "error_kind": "*", "retry_topic": "{topic}-{group}-retry"}
    rows = {
        "sources": [{**source, **said} for said in sources or ({},)],
        "routes": [{**route, "dead_letter_topic": "{topic}.dlq", **said} for said in routes],
        "dead_letter_topics": [{"error_class": "a.B", "topic": "*", "consumer_group": "*", **said} for said in classes],
    }
    return Seeds({name: tuple(Row(line, values) for line, values in enumerate(listed, 2)) for name, listed in rows.items()}, "digest")


@pytest.mark.parametrize("pattern", ["^", "^.*", "^.+", "^.", "^.*$", "^(.*)$", "^[^ ]"])
def test_a_pattern_that_allows_any_topic_is_recognised(pattern: str) -> None:
    assert speaks_for_all(pattern)


@pytest.mark.parametrize("pattern", ["^orders", "^[a-z]", "^.*[.]orders$", "orders", "^[^_]", "^.{1,20}$"])
def test_a_pattern_that_tells_topics_apart_is_not_taken_for_one(pattern: str) -> None:
    assert not speaks_for_all(pattern)


def test_who_speaks_for_any_topic_is_warned_of(settings: Settings) -> None:
    findings = list(_permissions(settings, seeds({"speaks_for": "orders ^.*"})))
    assert [(finding.ok, finding.warns) for finding in findings] == [(True, True)]
    assert "sources.csv:2: speaks_for is '^.*'" in findings[0].found
    assert list(_permissions(settings, seeds({"speaks_for": "orders ^payments[.]"}))) == []


def test_the_shipped_source_speaks_for_what_the_demo_uses() -> None:
    with (SEEDS / "sources.csv").open(newline="", encoding="utf-8") as file:
        assert [row["speaks_for"] for row in csv.DictReader(file)] == ["orders"]


@pytest.mark.parametrize("topic", ["_schemas", "__consumer_offsets", "redrive.commands", "told", "closed.gates"])
def test_a_route_to_an_internal_topic_is_found(settings: Settings, topic: str) -> None:
    found = [
        finding.found
        for given in (
            seeds(routes=({"retry_topic": topic},)),
            seeds(routes=({"dead_letter_topic": topic},)),
            seeds(classes=({"dead_letter_topic": topic},)),
        )
        for finding in _permissions(settings, given)
        if not finding.ok
    ]
    assert len(found) == 3
    assert all(f"is {topic!r}: nothing is sent to an internal topic" in said for said in found)


def test_a_source_that_reads_what_redrive_tells_is_found(settings: Settings) -> None:
    findings = list(_permissions(settings, seeds({"topic": "^told"})))
    assert [finding.ok for finding in findings] == [False]
    assert "matches told" in findings[0].found
