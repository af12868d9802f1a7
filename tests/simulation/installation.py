"""The installation that is simulated: its topics, its rules, and how they change."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from orchestration.settings import Settings, load_settings
from tests.simulation.fates import CHANGED, NARROW, POLICIES

GROUP = "billing"
REPORTS = "sim.reports"
COMMANDS = "redrive.commands"
PARTITIONS = 2

_WITHOUT_BOUND = {"retention.ms": "-1", "max.message.bytes": "4000000"}


def retries_of(topic: str) -> str:
    """The retry topic."""
    return f"{topic}-{GROUP}-retry"


def make_topics(kafka: dict[str, str], *names: str) -> None:
    """Creates topics, and waits until their partitions answer."""
    admin = AdminClient({**kafka})
    narrow = {**_WITHOUT_BOUND, "max.message.bytes": "5000"}
    made = [NewTopic(name, PARTITIONS, 1, config=narrow if name == retries_of(NARROW) else _WITHOUT_BOUND) for name in names]
    for answer in admin.create_topics(made).values():
        answer.result()
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(name, number): latest for name in names for number in range(PARTITIONS)}
    deadline = time.monotonic() + 60
    while True:
        try:
            for found in admin.list_offsets(asked).values():
                found.result()
            return
        except KafkaException:
            assert time.monotonic() < deadline, f"{names} don't answer"
            time.sleep(0.2)
            # a client that has seen a partition without a leader may go on saying so
            admin = AdminClient({**kafka})


def make_settings(kafka: dict[str, str], home: Path, project: Path) -> Settings:
    """Settings with the rules of the simulation, which are written to a directory of their own."""
    seeds = home / "seeds"
    shutil.copytree(project / "dbt_project" / "seeds", seeds)
    routes = ["topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic"]
    routes += [
        f"{topic},*,{kind},{topic},publish,{{topic}}-{{group}}-retry,{{topic}}.dlq" for topic in POLICIES for kind in ("*", "blocking")
    ]
    policies = ["policy,definition", *(f'{topic},"{policy.text}"' for topic, policy in POLICIES.items())]
    policies.append('publish,"fixed(1s x 1, 2s)"')
    source = f"failures,{REPORTS},redrive,,^sim[.][a-z]+$,earliest,true"
    for name, lines in (
        ("routes", routes),
        ("retry_policies", policies),
        ("sources", ["source,topic,dialect,consumer_group,speaks_for,start,states_kind", source]),
    ):
        (seeds / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}, project=project, settle_seconds=5)


def change_rules(settings: Settings) -> None:
    """Makes an error fatal that was retriable."""
    rules = settings.seeds / "error_rules.csv"
    lines = rules.read_text(encoding="utf-8").splitlines()
    lines.insert(1, f"{CHANGED},,,,fatal,*,*,*,it never passes")
    rules.write_text("\n".join(lines) + "\n", encoding="utf-8")
