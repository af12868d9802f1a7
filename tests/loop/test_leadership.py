"""Which loop is in charge, whatever it reads: the generation in Kafka on a real broker, without Spark or tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.kafka.cluster import Cluster
from orchestration.loop.health import Health
from orchestration.loop.leadership import OFFSETS, Leadership
from orchestration.rules.seeds import Row, read_seeds
from orchestration.settings import load_settings
from publisher import refuse_superseded
from tests.dbt.harness import PROJECT

SEEDS = read_seeds(PROJECT / "dbt_project" / "seeds")


class Leaderships:
    """Loops of one installation, as far as Kafka sees them; which were told that another one is in charge."""

    def __init__(self, kafka: dict[str, str], instance: str) -> None:
        self.kafka, self.instance = kafka, instance
        self.superseded: list[tuple[int, int]] = []

    def of(self, generation: int, *topics: str, commands_topic: str = "") -> Leadership:
        """A loop of this generation that reads these topics of reports."""
        settings = load_settings(kafka=self.kafka, instance=self.instance, commands_topic=commands_topic)
        sources = tuple(Row(number, {"topic": topic}) for number, topic in enumerate(topics))
        rules = SimpleNamespace(seeds=replace(SEEDS, rows={**SEEDS.rows, "sources": sources}))
        nothing = cast(Any, None)
        made = Leadership(
            settings, Cluster(self.kafka), cast(Any, rules), Health(nothing), lambda by: self.superseded.append((generation, by))
        )
        ledgers = SimpleNamespace(generation=generation, newest_generation=lambda: generation)
        made.stored = cast(Any, SimpleNamespace(spark=None, schema="", ledgers=ledgers, most_slots=lambda: 1))
        return made


@pytest.fixture
def loops(kafka: dict[str, str], topic_prefix: str) -> Leaderships:
    return Leaderships(kafka, topic_prefix.strip("-"))


@pytest.mark.parametrize("older_reads", [True, False])
@pytest.mark.parametrize("newer_reads", [True, False])
def test_a_newer_loop_is_in_charge_also_if_one_of_them_reads_no_topic(
    loops: Leaderships, create_topic: Callable[..., str], older_reads: bool, newer_reads: bool
) -> None:
    """Rows of outboxes and of tables don't come from Kafka, and a report topic may be created after the first start."""
    reports = create_topic("reports")
    older, newer = (loops.of(number, *[reports][:reads]) for number, reads in ((7, older_reads), (8, newer_reads)))
    older.fence()
    older.look()
    assert loops.superseded == []
    newer.fence()
    older.look()
    newer.look()
    assert loops.superseded == [(7, 8)]


def test_two_loops_that_read_different_topics_see_each_other(loops: Leaderships, create_topic: Callable[..., str]) -> None:
    older, newer = loops.of(7, create_topic("reports")), loops.of(8, create_topic("others"))
    older.fence()
    newer.fence()
    older.look()
    assert loops.superseded == [(7, 8)]


def test_the_generation_is_written_again_though_a_topic_was_deleted_since(
    loops: Leaderships, create_topic: Callable[..., str], kafka: dict[str, str]
) -> None:
    """Kafka takes the offsets of the others, and the transaction would stay open: each send would wait for it."""
    loop = loops.of(7, create_topic("reports"), "gone-" + (kept := create_topic("others")))
    admin = AdminClient({**kafka})
    admin.create_topics([NewTopic(f"gone-{kept}", 1, 1)])[f"gone-{kept}"].result()
    loop.fence()
    assert f"gone-{kept}" in loop.bulk_lane.settings.fence_topics
    admin.delete_topics([f"gone-{kept}"])[f"gone-{kept}"].result()
    loop._renews_at = 0.0
    loop.look()
    # after an attempt that failed, the next one would come in a minute
    assert loop._renews_at > time.monotonic() + 3_600
    refuse_superseded(loop.bulk_lane.settings)
    assert loops.superseded == []


def test_the_topic_of_commands_counts_as_one_that_is_read(loops: Leaderships, create_topic: Callable[..., str]) -> None:
    commands = create_topic("commands")
    loop = loops.of(7, commands_topic=commands)
    loop.fence()
    assert loop.bulk_lane.settings.fence_topics == (commands, OFFSETS)


def test_where_that_topic_may_not_be_read_those_of_the_loop_are_enough(
    loops: Leaderships, create_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = create_topic("reports")
    monkeypatch.setattr(Cluster, "not_readable", lambda _, names: {*names})
    older, newer = loops.of(7, reports), loops.of(8, reports)
    older.fence()
    newer.fence()
    assert newer.bulk_lane.settings.fence_topics == (reports,)
    older.look()
    assert loops.superseded == [(7, 8)]


def test_a_loop_that_may_read_no_topic_at_all_can_send_all_the_same(loops: Leaderships, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may it ask for offsets of such a topic."""
    monkeypatch.setattr(Cluster, "not_readable", lambda _, names: {*names})
    monkeypatch.setattr(Cluster, "committed", lambda *_: pytest.fail("it asks for what it may not read"))
    loop = loops.of(7)
    loop.fence()
    assert loop.bulk_lane.settings.fence_topics == ()
    assert loop.in_charge


@pytest.mark.long
def test_on_a_new_cluster_the_first_loop_sees_the_next_one_too(tmp_path: Path) -> None:
    with Broker(BrokerSettings(tmp_path / "broker")) as broker:
        loops = Leaderships({"bootstrap.servers": broker.bootstrap_servers}, "new")
        older, newer = loops.of(1), loops.of(2)
        older.fence()
        refuse_superseded(older.bulk_lane.settings)
        newer.fence()
        older.look()
        assert loops.superseded == [(1, 2)]
