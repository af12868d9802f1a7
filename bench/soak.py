"""Measures whether a loop stays as fast as after its start: 500 ticks, with maintenance after each hundred.

Each tick takes in about 100 reports and sends about 100 retries: each message fails twice, so half of the reports name the retry that
failed. Values are 500 bytes that don't compress.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.cimpl import NewTopic

from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from orchestration.tables.maintenance import TABLES, maintain
from publisher import make_client

TOPIC = "orders"
RETRIES = f"{TOPIC}-billing-retry"
_PARTITIONS = 3
_VALUE_BYTES = 500
_NEW_MESSAGES = 50
_EDGE = 50


def bench_soak(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object: median seconds of the first and the last 50 ticks, bytes per retry, data files and bytes of metadata at the end."""
    ticks, every = (120, 50) if quick else (500, 100)
    topics = ("redrive.failures", "redrive.failures.dlq", RETRIES, f"{TOPIC}.dlq")
    Cluster(kafka).create(NewTopic(name, _PARTITIONS, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    settings = load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)
    loop = Loop(settings)
    loop.start()
    consumer = Service(kafka)
    written = Written(loop)
    took: list[float] = []
    maintained: list[int] = []
    sent = 0
    # ticks with negative numbers warm up
    for number in range(-20, ticks):
        consumer.fail(_NEW_MESSAGES)
        if number == 0:
            written.begin()
        began = time.perf_counter()
        tick = loop.tick()
        if number < 0:
            continue
        took.append(time.perf_counter() - began)
        sent += tick.counts.get("delivered", 0)
        if (number + 1) % _EDGE == 0:
            print(f"{number + 1} ticks: {statistics.median(took[-_EDGE:]):.2f} s, {tick.counts} {tick.step_ms}", file=sys.stderr)
        if (number + 1) % every == 0:
            written.look()
            report = maintain(settings, loop.spark)
            maintained.append(sum(table.milliseconds for table in report.tables))
            print(*report.tables, sep="\n", file=sys.stderr)
    written.look()
    loop.close()
    consumer.close()
    first, last = statistics.median(took[:_EDGE]), statistics.median(took[-_EDGE:])
    return [
        {
            "ticks": ticks,
            "first_50_s": first,
            "last_50_s": last,
            "ratio": last / first,
            "retries": sent,
            "bytes_per_retry": round(written.by_loop / sent),
            "allowed": 1024 + 2 * _VALUE_BYTES,
            "rewritten_per_retry": round(written.by_maintenance / sent),
            "data_files": data_files(loop),
            "metadata_bytes": metadata_bytes(loop),
            "maintenance_s": statistics.median(maintained) / 1000,
        }
    ]


class Service:
    """A consumer that fails on each new message, and again on its first retry."""

    def __init__(self, kafka: dict[str, str], now: Callable[[], float] = time.time) -> None:
        """now: seconds since the beginning of 1970."""
        own = {"group.id": "billing", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
        self._consumer = make_client(Consumer, {**kafka, **own}, kafka)
        self._consumer.subscribe([RETRIES])
        self._next = 0
        self._now = now

    def fail(self, new_messages: int, *, dies: bool = False) -> None:
        """Reports that new messages failed, and the first retries that have come since the last call. dies: the first message is dead."""
        for number in range(new_messages):
            place = [("redrive-original-partition", str(self._next % _PARTITIONS).encode())]
            place += [("redrive-original-offset", str(self._next // _PARTITIONS).encode())]
            error = "KeyError" if dies and number == 0 else "TimeoutError"
            self._report(os.urandom(_VALUE_BYTES), f"key-{self._next}".encode(), [("trace-id", os.urandom(16)), *place], error)
            self._next += 1
        for message in self._came_back():
            headers: list[Any] = list(message.headers() or ())
            if dict(headers)["redrive-attempt"] == b"2":
                self._report(message.value(), message.key(), headers)
        self._producer.flush()

    def close(self) -> None:
        self._consumer.close()

    def _came_back(self) -> Iterable[Message]:
        return [message for message in self._consumer.consume(1000, 0.1) if not message.error()]

    def _report(self, value: Any, key: Any, headers: list[Any], error: str = "TimeoutError") -> None:
        now = int(self._now() * 1000)
        stated = {
            "redrive-error-class": error,
            "redrive-error-message": "no answer within 2 s",
            "redrive-original-topic": TOPIC,
            "redrive-failed-at": str(now),
            "redrive-consumer-group": "billing",
        }
        self._producer.produce(
            "redrive.failures", value, key, headers=[*headers, *((name, text.encode()) for name, text in stated.items())], timestamp=now
        )
        self._producer.poll(0)


class Written:
    """Bytes of added data files, by the summaries of snapshots: call `look` before maintenance, which expires snapshots."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._added: dict[tuple[str, int], tuple[str, int]] = {}
        self._before: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Counts only what is added after this call."""
        self.look()
        self._before = set(self._added)

    def look(self) -> None:
        for table in TABLES:
            snapshots = f"select snapshot_id, operation, summary['added-files-size'] as size from {self._loop.schema}.{table}.snapshots"
            for row in self._loop.spark.sql(snapshots).collect():
                self._added[table, int(row["snapshot_id"])] = (row["operation"], int(row["size"] or 0))

    @property
    def by_loop(self) -> int:
        return self._sum(replaced=False)

    @property
    def by_maintenance(self) -> int:
        return self._sum(replaced=True)

    def _sum(self, *, replaced: bool) -> int:
        kept = (added for snapshot, added in self._added.items() if snapshot not in self._before)
        return sum(size for operation, size in kept if (operation == "replace") is replaced)


def data_files(loop: Loop) -> int:
    """How many data files the tables consist of."""
    return sum(loop.spark.sql(f"select 1 from {loop.schema}.{table}.files").count() for table in TABLES)


def metadata_bytes(loop: Loop) -> int:
    """The size of all metadata of the tables."""
    tables = loop.settings.home / "warehouse" / loop.schema
    return sum(path.stat().st_size for table in TABLES for path in (tables / table / "metadata").rglob("*") if path.is_file())
