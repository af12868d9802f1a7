"""Measures how long a start takes until it has sent what is due: after an orderly end, and after a loop that was killed.

A million other messages wait. The loop that is killed has sent 10,000 messages and recorded none of them; the next loop reads its
topics back before it sends. Each case starts `redrive run` in a process of its own, while 10,000 other messages are due.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import Reader, environment, redrive_run
from bench.wheel import fill_wheel, settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.hand_over import HandOver
from orchestration.loop.loop import Loop
from orchestration.loop.sending import BulkLane
from orchestration.settings import load_settings

_CASES = ("after an end", "after a kill", "after an end, again", "after a kill, again")


def bench_restart(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per start: seconds until the first and the last record of what was due had come; how many came twice in all."""
    pending, rows = (10_000, 1_000) if quick else (1_000_000, 10_000)
    names = {case: [f"{kind}{number}" for kind in ("before", "after")] for number, case in enumerate(_CASES)}
    topics = [f"{name}-billing-retry" for case in names.values() for name in case]
    Cluster(kafka).create(NewTopic(name, 6, 1) for name in ("redrive.failures", "redrive.failures.dlq", "waiting-billing-retry", *topics))
    reader = Reader(kafka, topics)
    figures = []
    for case, (before, after) in names.items():
        due = _put(kafka, home, rows, before, after, pending if case == _CASES[0] else 0)
        if "kill" in case:
            command = [sys.executable, "-c", "from bench.restart import send_and_die; send_and_die()"]
            died = subprocess.run(command, env=environment(kafka, home), check=False, start_new_session=True)
            assert died.returncode == -signal.SIGKILL, died.returncode
            reader.until(f"{before}-billing-retry", rows)
        else:
            with redrive_run(kafka, home):
                reader.until(f"{before}-billing-retry", rows)
                # so that all results are recorded
                time.sleep(5)
        assert time.time() < due, "the rows of the next start are due already"
        time.sleep(due + 2 - time.time())
        began = time.time()
        with redrive_run(kafka, home):
            came = reader.came[f"{after}-billing-retry"]
            reader.until(f"{after}-billing-retry", rows)
            figures.append(
                {"start": case, "first_s": came[0] - began, "last_s": came[rows - 1] - began, "twice": sum(reader.twice.values())}
            )
            print(figures[-1], file=sys.stderr)
            time.sleep(5)
    reader.close()
    return figures


def send_and_die() -> None:
    """A loop that is killed when it has sent something, and before it records that."""

    def die(*_: object) -> None:
        # with Spark, which is in the same group of processes
        os.killpg(os.getpgid(0), signal.SIGKILL)

    HandOver._record = BulkLane.record = die  # type: ignore[method-assign, assignment]
    loop = Loop(load_settings())
    loop.start()
    loop.run()


def _put(kafka: dict[str, str], home: Path, rows: int, before: str, after: str, pending: int) -> float:
    """Adds what is due for the loop before and for the one that is measured, which is due later; returns when, in seconds since 1970."""
    # the seeds of all processes here: a start that finds others checks and loads them
    seeds = Path(environment(kafka, home)["REDRIVE_SEEDS"])
    loop = Loop(load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0))
    loop.start()
    now = datetime.now(UTC).replace(microsecond=0)
    if pending:
        fill_wheel(loop.spark, loop.schema, "waiting", pending, now + timedelta(hours=2), 46 * 3_600_000, loop.ledgers.batch)
        settle(loop)
        now = datetime.now(UTC).replace(microsecond=0)
    due = now + timedelta(seconds=150)
    for name, at in ((before, now), (after, due)):
        fill_wheel(loop.spark, loop.schema, name, rows, at, 1_000, loop.ledgers.batch)
    loop.close()
    loop.spark.stop()
    return due.timestamp()
