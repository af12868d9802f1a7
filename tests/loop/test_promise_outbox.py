"""Rows that several applications write at once are published once and in order, whatever is killed: counted by a reader of its own."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from orchestration.demo.broker import Broker
from orchestration.demo.postgres import Postgres
from tests.loop.outbox_kit import DONE, TABLE, Shop, needs_postgres
from tests.loop.processes import Processes, running_processes, until

pytestmark = [
    pytest.mark.slow,
    needs_postgres,
]

KILLS = (
    "after the rows' append",
    "after the decide step",
    "in the middle of sending",
    "before the results' append",
    "before the write-back",
    "after the write-back",
    "before rows are marked",
    "after rows are marked",
    "before the ticks row",
)
ROWS = 100_000
WRITERS = 3
AGGREGATES = 50

INSERT = "insert into orders_outbox (topic, aggregate_id, payload) values (%s, %s, %s)"


class Applications:
    """Writers with transactions of some rows each. Some commit late, some are rolled back. An aggregate has one writer at a time.

    committed: how many rows of each aggregate.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic
        self.committed: Counter[str] = Counter()
        self._locks = {f"a{number}": threading.Lock() for number in range(AGGREGATES)}

    def write(self, rows: int) -> None:
        """Writes so many rows, with all writers."""
        threads = [threading.Thread(target=self._write, args=((rows + seed) // WRITERS, seed)) for seed in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, rows: int, seed: int) -> None:
        chance = random.Random(f"{seed} {sum(self.committed.values())}")
        with psycopg.connect(self.address) as connection:
            while rows > 0:
                aggregate = chance.choice([*self._locks])
                count = min(rows, chance.randint(1, 40))
                with self._locks[aggregate]:
                    first = self.committed[aggregate]
                    numbers = range(first, first + count)
                    connection.cursor().executemany(INSERT, [(self.topic, aggregate, json.dumps({"n": n})) for n in numbers])
                    if chance.random() < 0.1:
                        connection.rollback()
                        continue
                    if chance.random() < 0.02:
                        # others commit higher ids meanwhile
                        time.sleep(chance.random())
                    connection.commit()
                    self.committed[aggregate] += count
                rows -= count


def _has_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


@pytest.fixture
def processes(broker: Broker, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Processes]:
    with running_processes({"bootstrap.servers": broker.bootstrap_servers}, tmp_path, pytestconfig.rootpath, "outboxkills") as running:
        yield running


def test_100_000_rows_are_published_once_and_in_order_whatever_is_killed(processes: Processes, postgres: Postgres) -> None:
    shop = Shop(postgres)
    shop.sql(TABLE.format(name="orders_outbox"))
    topic = "outboxkills.rows"
    processes.topics.topics(topic, f"{topic}.dlq", partitions=3)
    (processes.home / "seeds" / "outboxes.csv").write_text(
        "outbox,connection,table,profile,columns,topic,write_back\norders,shop,orders_outbox,eventferry,,,\n"
    )
    settings = {"connections": {"shop": postgres.address}, "look_ahead_seconds": 30}
    applications = Applications(postgres.address, topic)
    for kill in KILLS:
        process = processes.start(idle_for=20, settings=settings, die=kill)
        applications.write(ROWS // len(KILLS))
        until(partial(_has_ended, process), f"the loop dies {kill}")
    applications.write(ROWS - sum(applications.committed.values()))
    last = processes.start(idle_for=10, settings=settings)
    said = processes.ended(last, 900)
    assert last.returncode == 0, said[-3000:]

    in_order: dict[str, list[int]] = defaultdict(list)
    for record in processes.topics.read(topic):
        in_order[(record.key or b"").decode()].append(json.loads(record.value or b"{}")["n"])
    assert sum(applications.committed.values()) == ROWS
    assert {name: len(numbers) for name, numbers in in_order.items()} == dict(applications.committed)
    assert all(numbers == [*range(applications.committed[name])] for name, numbers in in_order.items())
    (row,) = shop.sql("select count(*) as rows, count(*) filter (where status <> %s) as others from orders_outbox", DONE)
    assert (row["rows"], row["others"]) == (ROWS, 0)
    verified = processes.called("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
