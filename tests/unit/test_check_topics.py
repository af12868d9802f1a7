"""What `redrive check` finds of topics: missing ones, and ones that don't fit; and which it makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import Cluster, Topic
from orchestration.kafka.topics import HEADER_ROOM_BYTES
from orchestration.rules.check import _topics
from orchestration.rules.check_findings import own_topic
from orchestration.rules.topics_needed import Need, Plan
from orchestration.settings import Settings, load_settings
from tests.unit.test_check import seeds

ORDERS = Topic("orders", "id", 6)
BYTES = 1_000_000
ENOUGH = BYTES + HEADER_ROOM_BYTES


@dataclass
class Kafka:
    """Topics with their partitions and the size of their largest record; keeps what is created."""

    partitions: dict[str, int]
    sizes: dict[str, int]
    created: list[Any] = field(default_factory=list)

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: Topic(name, "id", self.partitions[name]) for name in names}

    def groups(self) -> dict[str, list[str]]:
        return {}

    def max_message_bytes(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.sizes[name] for name in names}

    def not_readable(self, names: Iterable[str]) -> list[str]:
        return []

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
        return {}

    def create(self, topics: Iterable[Any]) -> dict[str, str | None]:
        self.created += topics
        return {topic.topic: "not enough brokers" if topic.topic == "orders.dlq" else None for topic in topics}


@pytest.fixture
def settings(pytestconfig: pytest.Config, tmp_path: Any) -> Settings:
    return load_settings(home=tmp_path, project=pytestconfig.rootpath)


def found(settings: Settings, kafka: Kafka, *, create: bool = False) -> dict[str, tuple[bool, str]]:
    """By what it is about: whether it is right, and what is said, of a source whose messages need two topics."""
    plan = Plan((Need("retries", ORDERS, "retries"), Need("orders.dlq", ORDERS, "dead letters")), ())
    given = seeds({"payload": "", "dialect": "redrive"}, routes=({"sequence": ""},))
    rulebook = cast(Any, SimpleNamespace(plan=lambda *_: plan))
    findings = _topics(cast(Cluster, kafka), settings, given, rulebook, [*kafka.partitions], (), create=create)
    return {finding.what: (finding.ok, finding.found) for finding in findings}


def test_topics_that_fit_are_right(settings: Settings) -> None:
    kafka = Kafka({"failures": 1, "orders": 6, "retries": 6, "orders.dlq": 12}, dict.fromkeys(("failures", "orders"), BYTES))
    kafka.sizes |= dict.fromkeys(("retries", "orders.dlq"), ENOUGH)
    assert found(settings, kafka) == {
        "source failures": (True, "failures"),
        "topic retries": (True, "6 partitions (retries)"),
        "topic orders.dlq": (True, "12 partitions (dead letters)"),
    }


def test_topics_that_are_too_small_are_named_with_what_they_need(settings: Settings) -> None:
    kafka = Kafka({"orders": 6, "retries": 6, "orders.dlq": 3}, {"orders": BYTES, "retries": ENOUGH - 1, "orders.dlq": ENOUGH})
    said = found(settings, kafka)
    assert said["source failures"] == (False, "no topic matches failures")
    assert said["topic retries"] == (
        False,
        f"max.message.bytes is {ENOUGH - 1}; {ENOUGH} leaves room for headers on records of orders",
    )
    assert said["topic orders.dlq"][0] is False
    assert said["topic orders.dlq"][1].startswith("has 3 partitions, orders has 6: ")


def test_missing_topics_are_named_and_made_where_it_is_asked(settings: Settings) -> None:
    kafka = Kafka({"failures": 1, "orders": 6}, {"failures": BYTES, "orders": BYTES})
    said = found(settings, kafka)
    assert said["topic retries"] == (False, "is missing (retries); --create makes it")
    assert kafka.created == []
    said = found(settings, kafka, create=True)
    assert said["topic retries"] == (True, "made, with 6 partitions")
    assert said["topic orders.dlq"] == (False, "not enough brokers")
    retries = next(topic for topic in kafka.created if topic.topic == "retries")
    assert (retries.num_partitions, retries.config) == (6, {"max.message.bytes": str(ENOUGH)})


def test_the_topic_of_commands_is_made_to_be_kept_for_ever(settings: Settings) -> None:
    kafka = Kafka({}, {})

    def asked(names: list[str], *, create: bool) -> list[tuple[bool, bool, str]]:
        findings = own_topic(
            cast(Cluster, kafka), settings, settings.commands_topic, names, "is there", "no commands can be given", create=create
        )
        return [(finding.ok, finding.warns, finding.found) for finding in findings]

    assert asked([settings.commands_topic], create=False) == [(True, False, "is there")]
    assert asked([], create=False) == [(True, True, "is missing: no commands can be given; --create makes it")]
    assert asked([], create=True) == [(True, False, "made, with 1 partition")]
    assert kafka.created[0].config == {"retention.ms": "-1"}
