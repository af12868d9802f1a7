"""The demo with an outbox: the orders are rows of a PostgreSQL table, some of which Kafka doesn't take at first, or never."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic
from rich.markup import escape
from rich.table import Table

from orchestration.demo.postgres import Postgres
from orchestration.demo.topics import read_since
from orchestration.kafka.cluster import Cluster

LATER = "orders.archive"
"""A topic that doesn't exist at first."""
SMALL = "orders.small"
"""A topic that takes no record of a usual size."""

# When the topic that is missing is created, in seconds after the first order.
_CREATED_AFTER = 12.0

# Of so many orders, one also goes to each of these topics.
_ONE_OF = 20

_SEED = "outbox,connection,table,profile\norders,demo,outbox,plain\n"


@dataclass
class OutboxDemo:
    """A PostgreSQL server with an application's tables, which lives as long as the `with` block."""

    kafka: dict[str, str]
    home: Path
    _postgres: Postgres = field(default_factory=Postgres)
    _timer: threading.Timer | None = None
    _later_begins: int = 0

    def __enter__(self) -> Self:
        from examples.outbox_orders import TABLES

        self._postgres.__enter__()
        with psycopg.connect(self._postgres.address) as connection:
            connection.execute(TABLES)
            # an earlier run with this home has published the rows of another table of this name. A row with the id of one of them would
            # be taken for it, and not be published: ids begin at the time, in a unit in which no run writes more rows than pass
            connection.execute("select setval(pg_get_serial_sequence('outbox', 'id'), %s)", [time.time_ns() // 1_000_000])
        cluster = Cluster(self.kafka)
        names = set(cluster.topic_names())
        new = [NewTopic(SMALL, 1, 1, config={"max.message.bytes": "100"}), NewTopic(f"{SMALL}.dlq", 1, 1), NewTopic(f"{LATER}.dlq", 1, 1)]
        cluster.create(topic for topic in new if topic.topic not in names)
        # an earlier run with this home has created it
        there = [partition for topic in cluster.describe({LATER} & names).values() for partition in topic.all_partitions]
        self._later_begins = sum(cluster.ends(there).values())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._postgres.__exit__(kind, error, trace)

    def settings(self, seeds: Path) -> dict[str, Any]:
        """The settings of the loop: the connection, and seeds that name the table."""
        directory = self.home / "outbox-seeds"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(seeds, directory)
        (directory / "outboxes.csv").write_text(_SEED, encoding="utf-8")
        return {"connections": {"demo": self._postgres.address}, "seeds": directory}

    def write(self, count: int) -> list[dict[str, Any]]:
        """The application stores so many orders; returns them."""
        from examples.outbox_orders import insert_orders
        from examples.produce_orders import orders

        if self._timer is None:
            self._timer = threading.Timer(_CREATED_AFTER, lambda: Cluster(self.kafka).create([NewTopic(LATER, 1, 1)]))
            self._timer.daemon = True
            self._timer.start()
        written = list(orders(count))
        insert_orders(self._postgres.address, written)
        for topic in (LATER, SMALL):
            insert_orders(self._postgres.address, written[::_ONE_OF], topic)
        return written

    def audit(self, begins: dict[TopicPartition, int]) -> tuple[list[str], int]:
        """Which rows that are done are in no topic, and how many records came twice. begins: where the demo began to write to `orders`."""
        with psycopg.connect(self._postgres.address) as connection:
            done = {f"outbox:orders/{row[0]}" for row in connection.execute("select id from outbox where status = 'done'")}
        published = read_since(self.kafka, {**begins, TopicPartition(LATER, 0): self._later_begins}, ("orders", LATER))
        sent = Counter(headers.get("redrive-delivery", "").rpartition("#")[0] for _, headers, _, _ in published)
        return sorted(done - sent.keys()), sum(count - 1 for one, count in sent.items() if one in done)

    def table(self) -> Table:
        """The rows of the outbox by topic and status."""
        shown = Table("topic", "status", "rows", "attempts, at most", "the last error", box=None, pad_edge=False)
        counted = """
            select topic, status, count(*), max(attempts), left(max(last_error), 60) from outbox
            group by topic, status order by topic, status
        """
        with psycopg.connect(self._postgres.address) as connection:
            for row in connection.execute(counted):
                shown.add_row(*("" if value is None else escape(str(value)) for value in row))
        return shown
