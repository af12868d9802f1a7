"""The installation that is simulated: its topics, its rules, and how they change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka._model import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from orchestration.settings import Settings, load_settings
from tests.simulation.fates import CHANGED, NARROW, POLICIES

GROUP = "billing"
REPORTS = "sim.reports"
COMMANDS = "redrive.commands"
PARTITIONS = 2

Place = tuple[str, int]
"""A partition: its topic and its number."""

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
    Ends(kafka).read(((name, number) for name in names for number in range(PARTITIONS)), IsolationLevel.READ_UNCOMMITTED)


class Ends:
    """Asks brokers for the ends of partitions, until they answer: on a busy machine, leaders change."""

    def __init__(self, kafka: dict[str, str]) -> None:
        self._kafka = kafka
        self._admin = AdminClient({**kafka})

    def read(self, places: Iterable[Place], level: IsolationLevel) -> dict[Place, int]:
        """The offset after the last record of each partition, or after the last one that is committed."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(*place): latest for place in places}
        deadline = time.monotonic() + 60
        while True:
            try:
                answers = self._admin.list_offsets(asked, isolation_level=level)
                ends = {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}
                # a broker that did not answer: an offset below zero, and no error
                if all(end >= 0 for end in ends.values()):
                    return ends
            except KafkaException:
                # a client that has seen a partition without a leader may go on saying so
                self._admin = AdminClient({**self._kafka})
            assert time.monotonic() < deadline, f"{asked} don't answer"
            time.sleep(0.2)


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
