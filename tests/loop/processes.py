"""Loops in processes of their own over one state, to be killed, frozen or superseded, and the consumer that fails what they send."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestration.settings import Settings, load_settings
from tests.loop.harness import Record, Topics, write_seeds
from tests.loop.loop_process import send_to_family
from tests.sessions import LARGE_PAGES

RETRY_TOPIC = "orders-billing-retry"
MAX_ATTEMPTS = 5

# As in production, but for the compiler: such a process lives for a minute, too short for what the JVM's second compiler takes of the
# processors. With the first one alone, the JVM has 48 MB for its code by default, which are soon full: it throws
# code away that it needs again.
_OF_A_SHORT_LIFE = {
    "REDRIVE_CODEGEN": "true",
    "SPARK_SUBMIT_OPTS": " ".join(("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", *LARGE_PAGES)),
}


@dataclass
class Processes:
    """Loops in processes of their own over one state, and the consumer that fails whatever it gets."""

    kafka: dict[str, str]
    home: Path
    project: Path
    topics: Topics
    domain: str
    _started: list[subprocess.Popen[str]] = field(default_factory=list)
    _seen: set[tuple[str, int, int]] = field(default_factory=set)
    _enough: threading.Event = field(default_factory=threading.Event)
    consumer_rests: threading.Event = field(default_factory=threading.Event)

    @property
    def commands(self) -> str:
        """The topic of commands: none that other tests have on this broker. A test that gives commands creates it."""
        return f"{self.domain}.commands"

    def start(self, idle_for: int = 5, *, settings: dict[str, Any] | None = None, **told: Any) -> subprocess.Popen[str]:
        """Starts a loop, which ends when nothing waits and nothing came for so many seconds. settings: others than the tests'."""
        # a loop that is to die dies once
        (self.home / "state" / "killed-at").unlink(missing_ok=True)
        given = self._given(idle_for_seconds=idle_for, **(settings or {}))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.loop.loop_process", json.dumps({"settings": given, **told})],
            cwd=self.project,
            env={**os.environ, **_OF_A_SHORT_LIFE, "PYTHONPATH": str(self.project)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def settings(self) -> Settings:
        """Those of the loops."""
        return load_settings(**self._given())

    def _given(self, **others: Any) -> dict[str, Any]:
        return {
            "home": str(self.home / "state"),
            "seeds": str(self.home / "seeds"),
            "project": str(self.project),
            "kafka": self.kafka,
            # another installation on the same brokers has another name, or one would fence the other
            "instance": self.domain,
            "commands_topic": self.commands,
            # the bulk lane alone, unless a test says otherwise
            "look_ahead_seconds": 0,
            **others,
        }

    def ended(self, process: subprocess.Popen[str], seconds: float = 1200) -> str:
        """Waits for the end of a loop; what it said."""
        try:
            return process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            send_to_family(process.pid, signal.SIGKILL)
            pytest.fail(f"the loop did not end within {seconds:g} s; it said:\n{process.communicate()[1][-4000:]}")

    def fail_some(self, prefix: str, count: int, **how: Any) -> None:
        """New messages whose first processing fails."""
        for number in range(count):
            self.topics.fails(f"{self.domain}.orders", f"{prefix}-{number}".encode(), b"value", **how)

    @contextlib.contextmanager
    def failing_consumer(self) -> Iterator[None]:
        """While inside: each retry is read, once, and fails again."""
        self._enough.clear()
        thread = threading.Thread(target=self._consume)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def _consume(self) -> None:
        while not self._enough.wait(0.3):
            if self.consumer_rests.is_set():
                continue
            for record in self.retries():
                place = (record.topic, record.partition, record.offset)
                if place not in self._seen:
                    self._seen.add(place)
                    self.topics.report(record)

    def retries(self) -> list[Record]:
        """All retries that lie in Kafka."""
        return self.topics.read(f"{self.domain}.{RETRY_TOPIC}")

    def dead(self) -> list[Record]:
        """All dead letters that lie in Kafka."""
        return self.topics.read(f"{self.domain}.orders.dlq")

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Asks the tables, from yet another process."""
        rows: list[dict[str, Any]] = json.loads(self.redrive("sql", statement, "--format", "json"))
        return rows

    def redrive(self, *arguments: str) -> str:
        """What the command line prints."""
        called = self.called(*arguments)
        called.check_returncode()
        return called.stdout

    def called(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a process that has ended."""
        environment = {
            **os.environ,
            **_OF_A_SHORT_LIFE,
            "REDRIVE_SEEDS": str(self.home / "seeds"),
            "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": self.kafka["bootstrap.servers"],
            "REDRIVE_INSTANCE": self.domain,
            "REDRIVE_COMMANDS_TOPIC": self.commands,
        }
        command = [str(Path(sys.executable).with_name("redrive")), *arguments, "--home", str(self.home / "state")]
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)

    def close(self) -> None:
        """Kills what is left."""
        for process in self._started:
            if process.poll() is None:
                send_to_family(process.pid, signal.SIGCONT)
                send_to_family(process.pid, signal.SIGKILL)
                process.communicate()


def until(condition: Callable[[], object], what: str, seconds: float = 1200) -> None:
    """Waits for something that another process does. A first start, and a first decide run, take minutes on a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def assert_never_early(records: list[Record]) -> None:
    for record in records:
        due = record.header("redrive-due")
        assert due is not None
        assert record.timestamp >= int(due)


@contextlib.contextmanager
def running_processes(kafka: dict[str, str], directory: Path, project: Path, domain: str, partitions: int = 1) -> Iterator[Processes]:
    """Processes with the tests' seeds, whose source reads only the topics of this domain. They are killed at the end."""
    topics = Topics(kafka)
    # only its own topics: the loops of a new home would take in what all tests before have written
    write_seeds(directory / "seeds", project, domain)
    topics.domain(domain, partitions)
    running = Processes(kafka, directory, project, topics, domain)
    yield running
    running.close()
    topics.close()
