"""Measures the time of a tick: idle, with only due rows, with only new failures, with both; while 100,000 other messages wait.

Also with only due rows, while 100,000 messages are due for a destination that is missing. Before these, the first start, which creates the
tables; after them, `redrive tick` in a new process, with existing tables and due rows.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.reports import report_failures
from bench.wheel import fall_due, fill_wheel, settle
from orchestration.kafka.cluster import Cluster
from orchestration.loop.health import DECIDE
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings


def bench_tick(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: case, rows, seconds (median), and milliseconds by step (of the last run)."""
    rows, pending, runs = (500, 5_000, 2) if quick else (5_000, 100_000, 7)
    cluster = Cluster(kafka)
    topics = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "due-billing-retry", "waiting-billing-retry")
    cluster.create(NewTopic(name, 6, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    loop = Loop(load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0))
    began = time.perf_counter()
    loop.start()
    started = time.perf_counter() - began
    now = datetime.now(UTC).replace(microsecond=0)
    fill_wheel(loop.spark, loop.schema, "waiting", pending, now + timedelta(hours=1), 48 * 3_600_000, loop.ledgers.batch)
    figures: list[dict[str, Any]] = [{"case": "start", "rows": 0, "seconds": started, "intake_ms": 0, "decide_ms": 0, "publish_ms": 0}]
    offset = 0
    for case in ("idle", "due", "new", "new and due", "due, one missing"):
        took: list[float] = []
        if "missing" in case:
            fall_due(loop, "missing", pending)
            settle(loop)
        for run in range(runs + 1):
            if "due" in case:
                name = f"due{case.replace(' ', '').replace(',', '')}{run}"
                cluster.create([NewTopic(f"{name}-billing-retry", 6, 1)])
                fall_due(loop, name, rows)
            if "new" in case:
                offset = report_failures(kafka, "orders", rows, offset)
            began = time.perf_counter()
            tick = loop.tick()
            took.append(time.perf_counter() - began)
            # the first intake after a calm time is small, until it is known how large the records are
            if run:
                assert tick.counts.get("events", 0) == (rows if "new" in case else 0), tick.counts
                # more: a retry of what the tick has decided may be due in the same tick
                assert tick.counts.get("delivered", 0) >= (rows if "due" in case else 0), tick.counts
            assert DECIDE not in loop.health, "nothing was decided"
            settle(loop)
        figures.append(
            {
                "case": case,
                "rows": 0 if case == "idle" else rows,
                # the first run of a case warms it up
                "seconds": statistics.median(took[1:]),
                **{f"{step}_ms": tick.step_ms.get(step, 0) for step in ("intake", "decide", "publish")},
            }
        )
    name = "dueagain"
    cluster.create([NewTopic(f"{name}-billing-retry", 6, 1)])
    fall_due(loop, name, rows)
    loop.close()
    again = _start_again(kafka, home / "state")
    figures.append({"case": "start again, due", "rows": rows, "seconds": again, "intake_ms": 0, "decide_ms": 0, "publish_ms": 0})
    return figures


def _start_again(kafka: dict[str, str], home: Path) -> float:
    """Seconds that `redrive tick` takes, from the start of its process to its end. Raises CalledProcessError."""
    environment = {**os.environ, "REDRIVE_HOME": str(home), "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": kafka["bootstrap.servers"]}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from orchestration.cli.main import main; main()", "tick"], env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - began
