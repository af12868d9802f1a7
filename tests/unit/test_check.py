"""What `redrive check` finds in seeds. Which topics it makes is asked of the SQL: tests/dbt/test_routing.py."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import Cluster, Topic
from orchestration.rules.check import _permissions
from orchestration.rules.check_sequences import sequences_kept
from orchestration.rules.seeds import Row, Seeds, read_seeds
from orchestration.rules.topic_patterns import speaks_for_all
from orchestration.rules.topics_needed import Need
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


def test_the_shipped_rules_are_those_of_the_readme() -> None:
    rows = read_seeds(SEEDS).rows
    policies = {row["policy"]: row["definition"] for row in rows["retry_policies"]}
    assert policies["default"] == "exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"
    everything = next(row for row in rows["routes"] if {row["topic"], row["consumer_group"], row["error_kind"]} == {"*"})
    assert (everything["retry_policy"], everything["retry_topic"]) == ("default", "{topic}-{group}-retry")
    readme = (SEEDS.parents[1] / "README.md").read_text(encoding="utf-8")
    assert all(f"`{said}`" in readme for said in (policies["default"], everything["retry_topic"]))


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


# ---------- whether the order of sequences can be kept


@dataclass
class Kafka:
    """Says how groups share partitions, and how topics are cleaned up; keeps what is created."""

    assignor: str | None = "range"
    policy: str = "compact"
    retention: dict[str, str | None] = field(default_factory=dict)
    created: list[Any] = field(default_factory=list)

    def assignors(self, groups: Iterable[str]) -> dict[str, str | None]:
        return {group: self.assignor for group in groups if self.assignor != ""}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
        return {name: {"cleanup.policy": self.policy, **self.retention} for name in names}

    def create(self, topics: Iterable[Any]) -> dict[str, str | None]:
        self.created += topics
        return {topic.topic: None for topic in self.created}


def order_of(settings: Settings, kafka: Kafka, *, retries: int | None = 6, sequences: int | None = 1, create: bool = False) -> list[str]:
    """What is not as it should be, or is warned of, for a group that must get 6 partitions of `orders` in order."""
    orders = Topic("orders", "id", 6)
    topics = {name: Topic(name, "id", number) for name, number in (("retries", retries), ("redrive.sequences", sequences)) if number}
    needs = [Need("orders.dlq", orders, "dead letters"), Need("retries", orders, "retries", in_order_for=("billing",))]
    findings = sequences_kept(cast(Cluster, kafka), settings, seeds(routes=({"sequence": "key"},)), needs, topics, create=create)
    return [f"{finding.what}: {finding.found}" for finding in findings if finding.warns or not finding.ok]


def test_where_order_is_kept_nothing_is_found(settings: Settings) -> None:
    assert order_of(settings, Kafka()) == []
    # a group without members has no assignor, and a missing retry topic is made with as many partitions
    assert order_of(settings, Kafka(assignor=""), retries=None) == []


def test_what_would_lose_the_order_of_sequences_is_found(settings: Settings) -> None:
    (partitions,) = order_of(settings, Kafka(), retries=12)
    assert partitions.startswith("topic retries: has 12 partitions, orders has 6: the group billing can't keep the order")
    (assignor,) = order_of(settings, Kafka(assignor="cooperative-sticky"))
    assert assignor.startswith("group billing: shares its partitions by 'cooperative-sticky'")
    (one,) = order_of(settings, Kafka(), sequences=3)
    assert one.startswith("topic redrive.sequences: has 3 partitions, and needs 1")
    (unknown,) = order_of(settings, Kafka(assignor=None))
    assert unknown == "group billing: can't be described: how it shares its partitions is not known"
    for policy in ("delete", "compact,delete"):
        (loses,) = order_of(settings, Kafka(policy=policy))
        assert f"loses what is held for long (cleanup.policy={policy})" in loses
    kept: dict[str, str | None] = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert order_of(settings, Kafka(policy="compact,delete", retention=kept)) == []
    (loses,) = order_of(settings, Kafka(policy="delete", retention={**kept, "retention.bytes": "100"}))
    assert "loses what is held for long" in loses
    (empty,) = order_of(settings.model_copy(update={"sequences_topic": ""}), Kafka())
    assert "is empty: consumers are not told" in empty


def test_the_topic_of_sequences_is_made_compacted_and_with_one_partition(settings: Settings) -> None:
    kafka = Kafka()
    assert "is missing" in order_of(settings, kafka, sequences=None)[0]
    assert order_of(settings, kafka, sequences=None, create=True) == []
    (made,) = kafka.created
    assert (made.topic, made.num_partitions, made.config["cleanup.policy"]) == ("redrive.sequences", 1, "compact")


def test_where_no_route_asks_for_order_nothing_is_asked_of_kafka(settings: Settings) -> None:
    needs = [Need("retries", Topic("orders", "id", 6), "retries")]
    assert list(sequences_kept(cast(Cluster, None), settings, seeds(routes=({"sequence": ""},)), needs, {}, create=True)) == []
