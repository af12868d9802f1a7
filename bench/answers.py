"""Measures commands from the shell, from the start of a process to its end: beside a running loop, which answers, and without one.

Also measures what queries cost the loop: the time of a tick with 500 new failures alone, while `redrive dlq groups` runs again and again,
and while a query over billions of rows runs, which the loop ends after 30 s.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import beside
from bench.reports import report_failures
from bench.wheel import settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings

_LONG = "select sum(hash(id)) from range(0, 100000000000, 1, 100000)"


def bench_answers(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: a command (seconds beside the loop, and without it), or a tick (seconds, the longest of them)."""
    runs, rows = (2, 50) if quick else (7, 500)
    topics = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "redrive.commands")
    Cluster(kafka).create(NewTopic(name, 1, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    loop = Loop(load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}))
    loop.start()
    environment = {**os.environ, "REDRIVE_HOME": str(home / "state"), "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": kafka["bootstrap.servers"]}
    offset = report_failures(kafka, "orders", rows, 0)
    settle(loop)
    message = loop.spark.sql(f"select min(message_id) as id from {loop.schema}.messages").collect()[0]["id"]
    commands = (
        ("status",),
        ("sql", "select state, count(*) as messages from messages group by state"),
        ("explain", message),
        ("classify", "--class", "java.net.SocketTimeoutException", "--topic", "orders"),
        ("policy", "try", "exponential(initial=1s, factor=2, max=60s, jitter=0.3, attempts=5)"),
        ("check",),
        ("waiting", "list"),
        ("dlq", "list"),
        ("dlq", "groups"),
    )
    beside = {words: _median(words, environment, runs) for words in commands}
    ticks: list[dict[str, Any]] = []
    for case, questions in (("alone", None), ("beside dlq groups", ("dlq", "groups")), ("beside a long question", ("sql", _LONG))):
        took = []
        with _asked(questions, environment):
            for _ in range(runs + 1):
                offset = report_failures(kafka, "orders", rows, offset)
                began = time.perf_counter()
                loop.tick()
                took.append(time.perf_counter() - began)
                settle(loop)
        median = statistics.median(took[1:])
        ticks.append({"case": f"tick, {case}", "beside_a_loop_s": median, "without_s": 0.0, "longest_s": max(took[1:])})
    loop.close()
    alone = {words: _median(words, environment, 1) for words in commands}
    asked = [
        {"case": " ".join(words)[:40], "beside_a_loop_s": beside[words][0], "without_s": alone[words][0], "longest_s": beside[words][1]}
        for words in commands
    ]
    return asked + ticks


def _median(words: tuple[str, ...], environment: dict[str, str], runs: int) -> tuple[float, float]:
    """Seconds of a command: the median, and the longest. The first run, which warms up, doesn't count if `runs` is above 1."""
    took = []
    for _ in range(runs + (runs > 1)):
        began = time.perf_counter()
        _run(words, environment)
        took.append(time.perf_counter() - began)
    counted = took[1:] or took
    print(f"{' '.join(words)[:60]}: {statistics.median(counted):.2f} s", file=sys.stderr)
    return statistics.median(counted), max(counted)


def _run(words: tuple[str, ...], environment: dict[str, str]) -> None:
    """Runs a command. Exit code 1 is no error here: `redrive check` ends with it if it finds something wrong."""
    program = "from orchestration.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words}: {done.stderr}")


@contextmanager
def _asked(words: tuple[str, ...] | None, environment: dict[str, str]) -> Iterator[None]:
    """Runs a command again and again inside the `with` block. At its end, a process that still waits for its answer is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def ask(ends: threading.Event) -> None:
        program = "from orchestration.cli.main import main; main()"
        while words is not None and not ends.is_set():
            quiet = subprocess.DEVNULL
            running[:] = [subprocess.Popen([sys.executable, "-c", program, *words], env=environment, stdout=quiet, stderr=quiet)]
            running[0].wait()

    def kill() -> None:
        for process in running:
            process.kill()

    with beside(ask, kill):
        yield
