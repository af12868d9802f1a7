"""Sequences on a real broker, with the consumers of the package `reporter`: within a key, the order of processing is that of producing."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from orchestration.cli.main import app
from reporter import ReportingConsumer, Topics
from tests.loop.harness import Redrive

pytestmark = pytest.mark.slow

SEQUENCES, COMMANDS = "redrive.sequences", "redrive.commands"


@dataclass
class Log:
    """What consumers have done: an independent record, by key."""

    fails: dict[tuple[str, int], int]
    """How often each record fails before it is processed, by key and number."""
    dies: frozenset[tuple[str, int]] = frozenset()
    tried: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    processed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def process(self, record: Message) -> None:
        """Fails as often as it is told to."""
        key = bytes(record.key() or b"").decode()
        number = json.loads(record.value() or b"0")
        with self.lock:
            self.tried[key, number] += 1
            if (key, number) in self.dies:
                raise KeyError("a bug")
            if self.tried[key, number] <= self.fails.get((key, number), 0):
                raise TimeoutError("not yet")
            self.processed[key].append(number)

    def count(self) -> int:
        with self.lock:
            return sum(len({*numbers}) for numbers in self.processed.values())

    def assert_in_order(self) -> None:
        """Within each key, the first time that a record was processed came after that of the records before it."""
        for key, numbers in self.processed.items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), (key, numbers)


@contextmanager
def consumers(redrive: Redrive, domain: str, log: Log, count: int = 1) -> Iterator[None]:
    """Consumers of one group, each in a thread. An error of one is raised at the end."""
    topics = Topics({f"{domain}.orders": f"{domain}.orders-billing-retry"}, f"{domain}.reports", SEQUENCES)
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            ReportingConsumer(redrive.kafka, "billing", topics).run(log.process, stop)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    if errors:
        raise errors[0]


def produce(redrive: Redrive, domain: str, keys: list[str], each: int) -> None:
    """Orders, one of each key after another."""
    for number in range(each):
        for key in keys:
            redrive.write(f"{domain}.orders", key.encode(), str(number).encode())


@pytest.fixture(scope="module")
def ordered(redrive: Redrive) -> Iterator[Redrive]:
    """The loop, with a route by which order matters."""
    redrive.topics(SEQUENCES, config={"cleanup.policy": "compact"})
    if COMMANDS not in redrive.loop.cluster.topic_names():
        redrive.topics(COMMANDS)
    seeds = redrive.loop.settings.seeds
    before = {name: (seeds / f"{name}.csv").read_text() for name in ("routes", "retry_policies")}
    head, *rows = before["routes"].splitlines()
    route = "^sequences,*,*,quick,publish,{topic}-{group}-retry,{topic}.dlq,,,,key"
    (seeds / "routes.csv").write_text("\n".join([f"{head},sequence", *(f"{row}," for row in rows), route, ""]))
    (seeds / "retry_policies.csv").write_text(before["retry_policies"] + 'quick,"fixed(200ms x 5)"\n')
    yield redrive
    for name, text in before.items():
        (seeds / f"{name}.csv").write_text(text)


def lose_the_topic_of_sequences(redrive: Redrive) -> None:
    """It is deleted, and created again, empty."""
    # held in a name: a client that is collected ends its requests
    admin = AdminClient({**redrive.kafka})
    admin.delete_topics([SEQUENCES])[SEQUENCES].result()
    redrive.until(lambda: SEQUENCES not in redrive.loop.cluster.topic_names(), "the topic is gone")
    redrive.topics(SEQUENCES, config={"cleanup.policy": "compact"})


def test_within_a_key_the_order_is_kept_while_consumers_come_and_go_and_the_topic_is_lost(ordered: Redrive) -> None:
    redrive, domain, chance = ordered, "sequencesorder", random.Random(7)
    redrive.domain(domain, partitions=2)
    keys, each = [f"k{number}" for number in range(20)], 5
    fails = {(key, number): chance.choice((1, 2)) for key in keys for number in range(each) if chance.random() < 0.15}
    log = Log(fails)
    produce(redrive, domain, keys, each)
    with consumers(redrive, domain, log):
        redrive.until(lambda: redrive.sql(f"select 1 from sequences where original_topic = '{domain}.orders'"), "a sequence is held")
        lose_the_topic_of_sequences(redrive)
        redrive.until(lambda: log.count() >= len(keys) * each * 3 // 4, "most of the orders are processed")
    # others take over, which have not reported what failed
    with consumers(redrive, domain, log, 2):
        redrive.until(lambda: log.count() == len(keys) * each, "all orders are processed")
        log.assert_in_order()
        assert {key: len({*numbers}) for key, numbers in log.processed.items()} == dict.fromkeys(keys, each)
        assert len(fails) > 10
        # what failed was tried as often as it was to fail, and once more; nothing else was charged an attempt
        dead = redrive.sql(f"select * from dead_letters where original_topic = '{domain}.orders'")
        assert dead == []
        attempts = redrive.sql(f"select max(attempts) as most from messages where original_topic = '{domain}.orders'")
        assert attempts[0]["most"] == 2
        redrive.until(
            lambda: not redrive.sql(f"select 1 from sequences where original_topic = '{domain}.orders'"), "all sequences are free"
        )


def test_what_follows_a_dead_message_takes_the_same_way_in_its_order(ordered: Redrive) -> None:
    redrive, domain = ordered, "sequencesdead"
    redrive.domain(domain)
    log = Log({}, dies=frozenset({("a", 1)}))
    produce(redrive, domain, ["a", "b"], 4)
    with consumers(redrive, domain, log):
        dead = redrive.dead(domain, 3)
        redrive.until(lambda: log.count() == 5, "all others are processed")
    assert (log.processed["a"], log.processed["b"]) == ([0], [0, 1, 2, 3])
    assert [(record.key, record.value) for record in dead] == [(b"a", b"1"), (b"a", b"2"), (b"a", b"3")]
    followers = redrive.sql(f"select * from followers where original_topic = '{domain}.orders' order by original_offset")
    assert [(row["state"], row["failed_message"]) for row in followers] == [("dead", f"billing:{domain}.orders/0/2")] * 2
    assert log.tried["a", 2] == log.tried["a", 3] == 0
    # the bug is mended, and all of them are sent again
    log.dies = frozenset()
    with consumers(redrive, domain, log):
        redrive_with_followers(redrive, f"billing:{domain}.orders/0/2")
        redrive.until(lambda: log.count() == 8, "the dead messages are processed")
        log.assert_in_order()
        redrive.until(lambda: not redrive.sql(f"select 1 from sequences where original_topic = '{domain}.orders'"), "the sequence is free")
    assert log.processed["a"] == [0, 1, 2, 3]


def redrive_with_followers(redrive: Redrive, message_id: str) -> None:
    settings = redrive.loop.settings
    environment = {
        "REDRIVE_HOME": str(settings.home),
        "REDRIVE_SEEDS": str(settings.seeds),
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": redrive.kafka["bootstrap.servers"],
    }
    arguments = ("dlq", "redrive", message_id, "--with-followers", "--reason", "mended")
    result = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert "redrive of 3 messages is given" in result.output
