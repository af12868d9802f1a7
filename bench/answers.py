"""Measures commands from the shell, from the start of a process to its end: beside a running loop, which answers, and without one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.reports import report_failures
from bench.wheel import settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings


def bench_answers(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per command: its seconds beside the loop, the median and the longest, and without a loop."""
    runs, rows = (2, 50) if quick else (7, 500)
    loop, asking = loop_to_ask(kafka, home)
    report_failures(kafka, "orders", rows, 0)
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
    beside = {words: _median(words, asking, runs) for words in commands}
    loop.close()
    alone = {words: _median(words, asking, 1) for words in commands}
    return [
        {"case": " ".join(words)[:40], "beside_a_loop_s": beside[words][0], "without_s": alone[words][0], "longest_s": beside[words][1]}
        for words in commands
    ]


def loop_to_ask(kafka: dict[str, str], home: Path) -> tuple[Loop, dict[str, str]]:
    """A loop that has started, and the environment of commands that ask it."""
    topics = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "redrive.commands")
    Cluster(kafka).create(NewTopic(name, 1, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    loop = Loop(load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}))
    loop.start()
    return loop, {**os.environ, "REDRIVE_HOME": str(home / "state"), "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": kafka["bootstrap.servers"]}


def command(words: tuple[str, ...]) -> list[str]:
    """The words of a process that runs a command."""
    return [sys.executable, "-c", "from orchestration.cli.main import main; main()", *words]


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
    done = subprocess.run(command(words), env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words}: {done.stderr}")
