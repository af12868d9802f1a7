"""What stands beside the loop in a benchmark: a consumer that fails, a reader of topics, and `redrive run` as a process of its own."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from orchestration.settings import load_settings
from publisher import make_client

RETRIES = "orders-billing-retry"
DELAYS = {1: "1 s", 2: "2 s", 3: "4 s"}
"""The default delays after the first failures."""

_READS = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}

_REDRIVE = [sys.executable, "-c", "from orchestration.cli.main import main; main()"]


class _Consumer:
    """A consumer in a thread, which takes each record as it comes. Call `_begin` when it is ready to take them."""

    def __init__(self, kafka: dict[str, str], group: str, topics: Sequence[str]) -> None:
        self._consumer = make_client(Consumer, {**kafka, **_READS, "group.id": group}, kafka)
        self._consumer.subscribe(list(topics))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._consume, daemon=True)

    def close(self) -> None:
        """Ends the thread."""
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def _begin(self) -> None:
        self._thread.start()

    def _consume(self) -> None:
        while not self._ends.is_set():
            for record in self._consumer.consume(500, 0.02):
                if record.error() is None:
                    self._take(record, time.time())
            self._after_some()

    def _take(self, record: Message, at: float) -> None:
        """Takes a record that came at a time, in seconds since 1970."""
        raise NotImplementedError

    def _after_some(self) -> None:
        """Called after some records, or after none came for a while."""


class FailingConsumer(_Consumer):
    """A consumer in a thread, which reports each retry as failed at once, until a message has failed three times.

    number: ends the names of its topics, as in `environment`.
    """

    def __init__(self, kafka: dict[str, str], number: str = "") -> None:
        self._orders, self._reports = f"orders{number}", f"redrive.failures{number}"
        self._retries = f"{self._orders}-billing-retry"
        super().__init__(kafka, "billing", [self._retries])
        self._producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
        self._next = 0
        self.forget()
        self._begin()

    def forget(self) -> None:
        """Forgets the retries that have come so far."""
        self.lateness: dict[int, list[float]] = defaultdict(list)
        self.arrivals: list[tuple[float, float]] = []
        """When each retry came, in seconds since 1970, and how late."""
        self.twice: dict[int, int] = defaultdict(int)
        self._seen: set[bytes] = set()

    def fail(self, count: int) -> None:
        """Processes some new messages, and reports those that fail."""
        for _ in range(count):
            place = {"topic": self._orders, "partition": "0", "offset": str(self._next)}
            self._report(f"key-{self._next}".encode(), os.urandom(250), [], place, 1)
            self._next += 1
        self._producer.flush()

    def error(self, key: bytes, attempt: int) -> str | None:
        """The error of an attempt; None: it succeeds."""
        return "TimeoutError" if attempt <= len(DELAYS) else None

    def until(self, retries: int, seconds: float = 600) -> None:
        """Waits until `retries` retries have come. Raises TimeoutError."""
        _wait(lambda: len(self.arrivals) >= retries, seconds, lambda: f"{retries} retries were expected: {self.in_short()}")

    def in_short(self) -> str:
        """How many retries have come, and for each delay the median lateness of the last thousand."""
        last = {attempt: statistics.median(late[-1000:]) for attempt, late in sorted(self.lateness.items())}
        return f"{len(self.arrivals)} retries, late by " + ", ".join(f"{late:.2f} s" for late in last.values())

    def _after_some(self) -> None:
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
        late = at - int(headers["redrive-due"]) / 1000
        self.lateness[attempt - 1].append(late)
        self.arrivals.append((at, late))
        place = {"topic": self._retries, "partition": str(record.partition()), "offset": str(record.offset())}
        self._report(record.key() or b"", record.value(), pairs, place, attempt)

    def _report(self, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]], place: dict[str, str], attempt: int) -> None:
        error = self.error(key, attempt)
        if error is None:
            return
        stated = {
            "redrive-error-class": error.encode(),
            "redrive-error-message": b"no answer within 2 s",
            **{f"redrive-original-{name}": text.encode() for name, text in place.items()},
            "redrive-failed-at": str(time.time_ns() // 1_000_000).encode(),
            "redrive-consumer-group": b"billing",
        }
        self._producer.produce(self._reports, value, key, headers=[*headers, *stated.items()])


class Reader(_Consumer):
    """A consumer in a thread, which notes for each topic when each record came, and counts deliveries that came before."""

    def __init__(self, kafka: dict[str, str], topics: Sequence[str]) -> None:
        super().__init__(kafka, f"bench-{os.urandom(4).hex()}", topics)
        self.came: dict[str, list[float]] = {topic: [] for topic in topics}
        self.late: dict[str, list[float]] = {topic: [] for topic in topics}
        """Of retries, the seconds after the due time."""
        self.twice: dict[str, int] = dict.fromkeys(topics, 0)
        self._seen: set[bytes] = set()
        self._begin()

    def until(self, topic: str, records: int, seconds: float = 600) -> None:
        """Waits until so many records of a topic have come. Raises TimeoutError."""
        came = self.came[topic]
        _wait(lambda: len(came) >= records, seconds, lambda: f"{topic}: {records} records were expected, {len(came)} came")

    def _take(self, record: Message, at: float) -> None:
        topic = str(record.topic())
        headers: dict[str, bytes] = dict(record.headers() or ())  # type: ignore[arg-type]  # redrive's own are never null
        delivery = headers["redrive-delivery"]
        if delivery in self._seen:
            self.twice[topic] += 1
            return
        self._seen.add(delivery)
        self.came[topic].append(at)
        self.late[topic].append(at - int(headers["redrive-due"]) / 1000)


def _wait(is_done: Callable[[], bool], seconds: float, problem: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(problem())
        time.sleep(0.1)


def figures_of(late: Sequence[float]) -> dict[str, Any]:
    """Of lateness in seconds: median, 99th percentile, the longest, and how many came early."""
    return {
        "p50_s": statistics.median(late),
        "p99_s": statistics.quantiles(late, n=100)[98],
        "longest_s": max(late),
        "early": sum(one < 0 for one in late),
    }


@contextmanager
def beside(work: Callable[[threading.Event], None], stop: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Something goes on in a thread inside the `with` block. work: ends soon after the event is set; stop: ends what it waits for."""
    ends = threading.Event()
    thread = threading.Thread(target=work, args=(ends,))
    thread.start()
    try:
        yield
    finally:
        ends.set()
        stop()
        thread.join()


@contextmanager
def redrive_run(kafka: dict[str, str], home: Path, number: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`redrive run` in a process of its own, in an `environment`."""
    loop = subprocess.Popen([*_REDRIVE, "run"], env=environment(kafka, home, number))
    try:
        yield loop
    finally:
        loop.terminate()
        loop.wait(60)


def redrive(kafka: dict[str, str], home: Path, *arguments: str) -> str:
    """The output of a command on the same home. Raises CalledProcessError."""
    command = [*_REDRIVE, *arguments]
    return subprocess.run(command, env=environment(kafka, home), check=True, stdout=subprocess.PIPE, text=True).stdout


def environment(kafka: dict[str, str], home: Path, number: str = "") -> dict[str, str]:
    """The environment of processes on a home, with the shipped rules, but without jitter, and for topics `orders` with any number.

    number: ends the name of the report topic, for a second installation on the same brokers.
    """
    seeds = home / "seeds"
    if not seeds.exists():
        shutil.copytree(load_settings().seeds, seeds)
        policies = seeds / "retry_policies.csv"
        policies.write_text(policies.read_text(encoding="utf-8").replace("jitter=0.3", "jitter=0"), encoding="utf-8")
        sources = seeds / "sources.csv"
        text = sources.read_text(encoding="utf-8").replace(",orders,", ",^orders[0-9]*$,")
        sources.write_text(text.replace("redrive.failures", f"redrive.failures{number}"), encoding="utf-8")
    return {
        **os.environ,
        "REDRIVE_HOME": str(home / "state"),
        "REDRIVE_SEEDS": str(seeds),
        "REDRIVE_INSTANCE": f"default{number}",
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": kafka["bootstrap.servers"],
        "REDRIVE_LOG_LEVEL": os.environ.get("REDRIVE_LOG_LEVEL", "warning"),
    }
