"""Measures how late retries reach a consumer: failures at an even rate, each retried after 1, 2 and 4 s, without jitter.

`redrive run` is a process of its own, as in production; this process is the producer, and the consumer that fails each message three times.
Lateness is the time at which the consumer receives a retry, minus the due time that the retry's header states.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.cimpl import NewTopic

from orchestration.kafka.cluster import Cluster
from orchestration.settings import load_settings
from publisher import make_client

_RETRIES = "orders-billing-retry"
_DELAYS = {1: "1 s", 2: "2 s", 3: "4 s"}


def bench_lateness(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per delay: how many retries arrived, their lateness in seconds, and how many came early, twice, or not at all."""
    a_second, seconds = (20, 30) if quick else (200, 300)
    topics = ("redrive.failures", "redrive.failures.dlq", _RETRIES, "orders.dlq")
    Cluster(kafka).create(NewTopic(name, 3, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    consumer = _Failing(kafka)
    with _running(kafka, home):
        # warms up: the first decisions of a process take seconds longer
        consumer.fail(a_second)
        consumer.until(3 * a_second)
        consumer.forget()
        began = time.monotonic()
        for second in range(seconds):
            consumer.fail(a_second)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            if second % 30 == 29:
                print(f"{second + 1} s: {consumer.in_short()}", file=sys.stderr)
        consumer.until(3 * a_second * seconds)
    consumer.close()
    return [
        {
            "delay": delay,
            "failures_a_second": a_second,
            "retries": len(late := consumer.lateness[attempt]),
            "p50_s": statistics.median(late),
            "p99_s": statistics.quantiles(late, n=100)[98],
            "longest_s": max(late),
            "early": sum(one < 0 for one in late),
            "twice": consumer.twice[attempt],
            "missing": a_second * seconds - len(late),
        }
        for attempt, delay in _DELAYS.items()
    ]


class _Failing:
    """A consumer in a thread, which reports each retry as failed at once, until a message has failed three times."""

    def __init__(self, kafka: dict[str, str]) -> None:
        own = {"group.id": "billing", "auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        self._producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
        self._consumer = make_client(Consumer, {**kafka, **own}, kafka)
        self._consumer.subscribe([_RETRIES])
        self._next = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._consume, daemon=True)
        self.forget()
        self._thread.start()

    def forget(self) -> None:
        """Forgets the retries that have come so far."""
        self.lateness: dict[int, list[float]] = defaultdict(list)
        self.twice: dict[int, int] = defaultdict(int)
        self._seen: set[bytes] = set()

    def fail(self, count: int) -> None:
        """Reports the first failures of some messages."""
        for _ in range(count):
            place = {"topic": "orders", "partition": "0", "offset": str(self._next)}
            self._report(f"key-{self._next}".encode(), os.urandom(250), [], place)
            self._next += 1
        self._producer.flush()

    def until(self, retries: int, seconds: float = 600) -> None:
        """Waits until `retries` retries have come. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while sum(map(len, self.lateness.values())) < retries:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{retries} retries were expected: {self.in_short()}")
            time.sleep(0.1)

    def in_short(self) -> str:
        """How many retries have come, and for each delay the median lateness of the last thousand."""
        last = {attempt: statistics.median(late[-1000:]) for attempt, late in sorted(self.lateness.items())}
        return f"{sum(map(len, self.lateness.values()))} retries, late by " + ", ".join(f"{late:.2f} s" for late in last.values())

    def close(self) -> None:
        """Ends the thread."""
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def _consume(self) -> None:
        while not self._ends.is_set():
            for record in self._consumer.consume(500, 0.02):
                if record.error() is None:
                    self._take(record, time.time())
            self._producer.poll(0)

    def _take(self, record: Message, at: float) -> None:
        pairs: list[tuple[str, bytes]] = list(record.headers() or ())  # type: ignore[arg-type]  # redrive's own are never null
        headers = dict(pairs)
        attempt, delivery = int(headers["redrive-attempt"]), headers["redrive-delivery"]
        if delivery in self._seen:
            self.twice[attempt] += 1
            return
        self._seen.add(delivery)
        # the header has the number of this attempt: after the first failure, 2
        self.lateness[attempt - 1].append(at - int(headers["redrive-due"]) / 1000)
        if attempt <= len(_DELAYS):
            place = {"topic": _RETRIES, "partition": str(record.partition()), "offset": str(record.offset())}
            self._report(record.key(), record.value(), pairs, place)

    def _report(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], place: dict[str, str]) -> None:
        stated = {
            "redrive-error-class": b"TimeoutError",
            "redrive-error-message": b"no answer within 2 s",
            **{f"redrive-original-{name}": text.encode() for name, text in place.items()},
            "redrive-failed-at": str(time.time_ns() // 1_000_000).encode(),
            "redrive-consumer-group": b"billing",
        }
        self._producer.produce("redrive.failures", value, key, headers=[*headers, *stated.items()])


@contextmanager
def _running(kafka: dict[str, str], home: Path) -> Iterator[None]:
    """`redrive run` in a process of its own, with the shipped rules, except for the jitter."""
    seeds = home / "seeds"
    shutil.copytree(load_settings().seeds, seeds)
    policies = seeds / "retry_policies.csv"
    policies.write_text(policies.read_text(encoding="utf-8").replace("jitter=0.3", "jitter=0"), encoding="utf-8")
    environment = {
        **os.environ,
        "REDRIVE_HOME": str(home / "state"),
        "REDRIVE_SEEDS": str(seeds),
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": kafka["bootstrap.servers"],
        "REDRIVE_LOG_LEVEL": os.environ.get("REDRIVE_LOG_LEVEL", "warning"),
    }
    loop = subprocess.Popen([sys.executable, "-c", "from orchestration.cli.main import main; main()", "run"], env=environment)
    try:
        yield
    finally:
        loop.terminate()
        loop.wait(60)
