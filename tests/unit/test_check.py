"""What `redrive check` finds in seeds and topics, and which topics it makes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from orchestration.kafka.cluster import Topic
from orchestration.rules.check import _permissions
from orchestration.rules.routing import speaks_for_all
from orchestration.rules.seeds import Row, Seeds
from orchestration.rules.topics_needed import plan_topics
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


def topics(*names: str) -> dict[str, Topic]:
    return {name: Topic(name, f"id-of-{name}", 3) for name in names}


def needed(
    settings: Settings, seeds: Seeds, names: tuple[str, ...], read: dict[str, set[str]], *groups: str
) -> tuple[set[str], dict[str, str]]:
    plan = plan_topics(settings, seeds, topics(*names), read, groups)
    return {need.topic for need in plan.needs} - {"failures.dlq"}, dict(plan.unknown)


@pytest.mark.parametrize("pattern", ["^", "^.*", "^.+", "^.", "^.*$", "^(.*)$", "^[^ ]"])
def test_a_pattern_that_allows_any_topic_is_recognised(pattern: str) -> None:
    assert speaks_for_all(pattern)


@pytest.mark.parametrize("pattern", ["^orders", "^[a-z]", "^.*[.]orders$", "orders", "^[^_]", "^.{1,20}$"])
def test_a_pattern_that_tells_topics_apart_does_not(pattern: str) -> None:
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


def test_the_topics_of_groups_that_have_committed_are_needed(settings: Settings) -> None:
    found, unknown = needed(settings, seeds(), ("failures", "orders", "other"), {"billing": {"orders", "other"}})
    assert found == {"orders-billing-retry", "orders.dlq"}
    assert unknown == {}


def test_none_of_redrives_own_topics_and_groups_is_a_consumer_to_make_topics_for(settings: Settings) -> None:
    names = ("failures", "redrive.commands", "told", "closed.gates", "__consumer_offsets", "orders", "orders-billing-retry", "orders.dlq")
    read = {"billing": {*names}, "watcher": {"redrive.commands", "told", "failures", "orders.dlq", "orders-billing-retry"}}
    found, _ = needed(settings, seeds({"speaks_for": "^.*"}), names, read)
    assert found == {"orders-billing-retry", "orders.dlq"}


def test_a_retry_topic_whose_original_is_gone_needs_none_of_its_own(settings: Settings) -> None:
    found, _ = needed(settings, seeds({"speaks_for": "^.*"}), ("failures", "gone-billing-retry"), {"billing": {"gone-billing-retry"}})
    assert found == set()


def test_a_group_that_has_not_committed_yet_can_be_named(settings: Settings) -> None:
    found, unknown = needed(settings, seeds(), ("failures", "orders", "other"), {}, "billing", "stock")
    assert found == {"orders-billing-retry", "orders-stock-retry", "orders.dlq"}
    assert unknown == {}


def test_a_named_group_is_not_taken_for_a_reader_of_every_topic(settings: Settings) -> None:
    any_topic = seeds({"speaks_for": "^.*"}, {"source": "more", "topic": "more", "speaks_for": "^pay-"})
    found, _ = needed(settings, any_topic, ("failures", "orders", "pay-in"), {}, "billing")
    assert found == {"pay-in-billing-retry", "pay-in.dlq"}


def test_a_group_that_a_source_declares_reads_what_the_source_speaks_for(settings: Settings) -> None:
    declared = seeds({"consumer_group": "billing", "speaks_for": "orders ^pay-"}, {"source": "s", "topic": "s", "speaks_for": "stock"})
    found, _ = needed(settings, declared, ("failures", "orders", "pay-in", "stock"), {})
    assert found == {"orders-billing-retry", "orders.dlq", "pay-in-billing-retry", "pay-in.dlq", "stock.dlq"}


def test_what_cannot_be_known_is_listed(settings: Settings) -> None:
    by_kind = seeds({"speaks_for": "orders missing"}, routes=({"retry_topic": "{topic}.{kind}"}, {"topic": "orders"}))
    found, unknown = needed(settings, by_kind, ("failures", "orders"), {})
    assert found == {"orders.dlq"}
    assert "--group NAME" in unknown["topic orders"]
    assert "how many partitions" in unknown["topic missing"]
    assert "neither looked for nor made" in unknown["{topic}.{kind}"]
