"""Measures the decide step by the number of its inputs: 500, 5,000 and 50,000 new failures, while 100,000 other messages wait.

Also the third decide step after a start, compared with later ones of the same size: how long a start goes on making its steps slower.
"""

from __future__ import annotations

import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.reports import report_failures
from bench.wheel import fill_wheel
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings

_TOPICS = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "waiting-billing-retry")

# the steps whose time depends on the start before them
_FIRST_STEPS = 3


def bench_decide(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per number of inputs: inputs, decide_ms and tick_ms (medians), third_ms, and its ratio to decide_ms."""
    sizes, pending, runs = ((500,), 5_000, 3) if quick else ((500, 5_000, 50_000), 100_000, 8)
    Cluster(kafka).create(NewTopic(name, 6, 1, config={"max.message.bytes": "4000000"}) for name in _TOPICS)
    # a process for each size, with a Spark session of its own
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        return [processes.submit(_measured, kafka, home / "state", size, pending, runs).result() for size in sizes]


def _measured(kafka: dict[str, str], home: Path, size: int, pending: int, runs: int) -> dict[str, Any]:
    settings = load_settings(home=home, kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)
    steps: list[int] = []
    ticks: list[int] = []
    with closing(Loop(settings)) as loop:
        loop.start()
        now = datetime.now(UTC).replace(microsecond=0)
        if not loop.ledgers.batch:
            fill_wheel(loop.spark, loop.schema, "waiting", pending, now + timedelta(hours=1), 48 * 3_600_000, loop.ledgers.batch)
        for run in range(_FIRST_STEPS + runs):
            # not the offsets of another size
            report_failures(kafka, "orders", size, 100 * size + run * size)
            decided = 0
            steps.append(0)
            ticks.append(0)
            while decided < size:
                tick = loop.tick()
                decided += tick.counts.get("decisions", 0)
                steps[-1] += tick.step_ms.get("decide", 0)
                ticks[-1] += sum(tick.step_ms.values())
    later = statistics.median(steps[_FIRST_STEPS:])
    return {
        "inputs": size,
        "decide_ms": round(later),
        "tick_ms": round(statistics.median(ticks[_FIRST_STEPS:])),
        "third_ms": steps[_FIRST_STEPS - 1],
        "third / later": round(steps[_FIRST_STEPS - 1] / later, 2),
    }
