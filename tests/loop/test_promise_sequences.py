"""Within a key the order of processing is that of producing, whatever is killed: counted by a checker of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from orchestration.demo.broker import Broker
from tests.loop.consumer_process import fails
from tests.loop.processes import Processes, running_processes, until

pytestmark = pytest.mark.slow

DOMAIN, PARTITIONS = "sequencekills", 6
ROUTE = f"^{DOMAIN},*,*,quick,publish,{{topic}}-{{group}}-retry,{{topic}}.dlq,,,,key"
KILLS = ("after the decide step", "in the middle of sending", "before the results' append", "before the ticks row")


class Consumers:
    """Consumers in processes of their own, which share a file of what they have processed."""

    def __init__(self, kafka: dict[str, str], log: Path, project: Path, ignores: str = "") -> None:
        self.log = log
        self._told = {"kafka": kafka, "domain": DOMAIN, "log": str(log), "ignores": ignores}
        self._project = project
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        for _ in range(count):
            command = [sys.executable, "-m", "tests.loop.consumer_process", json.dumps(self._told)]
            self._running.append(
                subprocess.Popen(
                    command, cwd=self._project, env={**os.environ, "PYTHONPATH": str(self._project)}, stderr=subprocess.DEVNULL
                )
            )

    def kill_one(self) -> None:
        """Another one takes its partitions over."""
        killed = self._running.pop(0)
        killed.kill()
        killed.wait()
        self.start(1)

    def close(self) -> None:
        for one in self._running:
            one.send_signal(signal.SIGTERM)
        for one in self._running:
            assert one.wait(60) == 0

    def processed(self) -> dict[str, list[int]]:
        """By key, the numbers of its records in the order of processing; repeats count where they came first."""
        found: dict[str, dict[int, None]] = defaultdict(dict)
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            key, number = line.split()
            found[key][int(number)] = None
        return {key: list(numbers) for key, numbers in found.items()}

    def count(self) -> int:
        return sum(map(len, self.processed().values()))


@pytest.fixture
def processes(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Processes]:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with running_processes(kafka, tmp_path, pytestconfig.rootpath, DOMAIN, PARTITIONS) as running:
        seeds = running.home / "seeds"
        head, *rows = (seeds / "routes.csv").read_text().splitlines()
        (seeds / "routes.csv").write_text("\n".join([f"{head},sequence", *(f"{row}," for row in rows), ROUTE, ""]))
        (seeds / "retry_policies.csv").write_text((seeds / "retry_policies.csv").read_text() + 'quick,"fixed(1s x 5)"\n')
        running.topics.topics(f"{DOMAIN}.sequences", config={"cleanup.policy": "compact"})
        yield running
        admin = AdminClient({**kafka})
        for topic, deleted in admin.delete_topics([name for name in admin.list_topics().topics if name.startswith(f"{DOMAIN}.")]).items():
            assert deleted.result() is None, topic


def produce(kafka: dict[str, str], keys: int, each: int) -> None:
    """Records of all keys, in turns."""
    # without idempotence, a batch that is sent again may come after later ones
    producer = Producer({**kafka, "linger.ms": 5, "enable.idempotence": True})
    for number in range(each):
        for key in range(keys):
            producer.produce(f"{DOMAIN}.orders", str(number), f"k{key}")
            producer.poll(0)
    producer.flush()


def lose_the_topic(processes: Processes) -> None:
    """The topic of sequences is deleted, and made again, empty."""
    admin = AdminClient({**processes.kafka})
    admin.delete_topics([f"{DOMAIN}.sequences"])[f"{DOMAIN}.sequences"].result()
    until(lambda: f"{DOMAIN}.sequences" not in admin.list_topics().topics, "the topic is gone")
    processes.topics.topics(f"{DOMAIN}.sequences", config={"cleanup.policy": "compact"})


def _are_processed(consumers: Consumers, count: int) -> bool:
    # reading the file takes a tenth of a second
    time.sleep(1)
    return consumers.count() >= count


def _has_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def out_of_order(processed: dict[str, list[int]]) -> list[str]:
    """The keys whose records were not processed in the order of their numbers."""
    return [key for key, numbers in processed.items() if numbers != sorted(numbers)]


def test_100_000_records_are_processed_in_the_order_of_their_keys_whatever_is_killed(processes: Processes, tmp_path: Path) -> None:
    keys, each, chance = 1_000, 100, random.Random(7)
    settings = {"sequences_topic": f"{DOMAIN}.sequences", "look_ahead_seconds": 30}
    produce(processes.kafka, keys, each)
    consumers = Consumers(processes.kafka, tmp_path / "processed", processes.project)
    consumers.start(3)
    for kill in KILLS:
        loop = processes.start(idle_for=3_600, settings=settings, die=kill)
        until(partial(_has_ended, loop), f"the loop dies {kill}")
        time.sleep(chance.uniform(0, 5))
        consumers.kill_one()
    last = processes.start(idle_for=3_600, settings=settings)
    until(partial(_are_processed, consumers, round(keys * each * 0.97)), "most are processed", 3_600)
    lose_the_topic(processes)
    consumers.kill_one()
    until(partial(_are_processed, consumers, keys * each), "all are processed", 3_600)
    last.terminate()
    processes.ended(last)
    consumers.close()
    assert out_of_order(consumers.processed()) == []
    # nothing but failures was charged
    (row,) = processes.sql("select max(attempts) as most, count_if(state = 'dead') as dead, count(*) as failed from messages")
    assert (row["most"], row["dead"]) == (2, 0)
    assert row["failed"] >= sum(fails(f"k{key}", number) > 0 for key in range(keys) for number in range(each))


def test_consumers_that_ignore_epochs_are_found_by_the_checker(processes: Processes, tmp_path: Path) -> None:
    keys, each = 20, 40
    settings = {"sequences_topic": f"{DOMAIN}.sequences", "look_ahead_seconds": 30}
    produce(processes.kafka, keys, each)
    consumers = Consumers(processes.kafka, tmp_path / "processed", processes.project, ignores="epochs")
    consumers.start(1)
    loop = processes.start(idle_for=3_600, settings=settings)
    until(partial(_are_processed, consumers, keys * each), "all are processed", 1_800)
    loop.terminate()
    processes.ended(loop)
    consumers.close()
    assert out_of_order(consumers.processed()) != []
