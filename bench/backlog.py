"""Measures whether a backlog is processed in bounded ticks: 300,000 retries due at once, then 300,000 new failures at once.

Memory is the sum of the peak resident sizes of the loop's processes (Python, Spark, Spark's Python workers), from Linux's /proc. Values are
500 bytes.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.memory import peak_memory_mb
from bench.reports import report_failures
from bench.wheel import fall_due
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings


def bench_backlog(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: rows, ticks, rows of the largest tick, seconds in all, of a median tick and of the longest, memory in MB."""
    rows = 20_000 if quick else 300_000
    topics = ("redrive.failures", "redrive.failures.dlq", "orders-billing-retry", "late-billing-retry")
    cluster = Cluster(kafka)
    cluster.create(NewTopic(name, 6, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    loop = Loop(load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0))
    loop.start()
    figures = [{"case": "start", **_worked_off(loop, 0, "delivered")}]
    fall_due(loop, "late", rows)
    figures.append({"case": "due at once", **_worked_off(loop, rows, "delivered")})
    report_failures(kafka, "orders", rows, 0)
    figures.append({"case": "new at once", **_worked_off(loop, rows, "decisions")})
    loop.close()
    return figures


def _worked_off(loop: Loop, rows: int, counted: str) -> dict[str, Any]:
    took: list[float] = []
    counts: list[int] = []
    while sum(counts) < rows:
        began = time.perf_counter()
        tick = loop.tick()
        took.append(time.perf_counter() - began)
        counts.append(tick.counts.get(counted, 0))
        print(f"{sum(counts):,} of {rows:,}: {took[-1]:.1f} s", file=sys.stderr)
    return {
        "rows": rows,
        "ticks": len(took),
        "largest": max(counts, default=0),
        "seconds": sum(took),
        "median_s": statistics.median(took) if took else 0.0,
        "longest_s": max(took, default=0.0),
        "memory_mb": peak_memory_mb(loop),
    }
