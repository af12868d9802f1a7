"""Measures whether both lanes go on while a million retries fall due at once and the timed lane has work.

The backlog is put into the tables before `redrive run` starts, due a while later. Beside it, failures at an even rate, each retried after
1, 2 and 4 s: their lateness before, while and after the backlog is sent.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import RETRIES, FailingConsumer, Reader, figures_of, redrive_run
from bench.memory import peak_mb
from bench.wheel import fill_wheel
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings

_LATE = "late-billing-retry"


def bench_lanes(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """Four objects: the backlog, and the retries of the timed lane before, while and after it was sent."""
    rows, a_second, ahead, after = (20_000, 10, 120, 20) if quick else (1_000_000, 50, 240, 60)
    topics = ("redrive.failures", "redrive.failures.dlq", RETRIES, _LATE, "orders.dlq")
    Cluster(kafka).create(NewTopic(name, 3, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    due = _put(kafka, home, rows, ahead)
    reader, consumer = Reader(kafka, [_LATE]), FailingConsumer(kafka)
    failed = 0
    with redrive_run(kafka, home) as loop:
        consumer.fail(a_second)
        consumer.until(3 * a_second)
        consumer.forget()
        began = time.monotonic()
        ends: float | None = None
        while ends is None or time.monotonic() < ends:
            consumer.fail(a_second)
            failed += a_second
            time.sleep(max(0.0, began + failed / a_second - time.monotonic()))
            if ends is None and len(reader.came[_LATE]) == rows:
                ends = time.monotonic() + after
            if failed // a_second % 20 == 0:
                print(f"{len(reader.came[_LATE]):,} of {rows:,}; {consumer.in_short()}", file=sys.stderr)
        consumer.until(3 * failed)
        memory = peak_mb(loop.pid)
    consumer.close()
    reader.close()
    sent = reader.came[_LATE]
    assert consumer.arrivals[0][0] < due, "the loop had not started yet when the backlog fell due"
    figures = [_figures("backlog", reader.late[_LATE], sent[-1] - due, reader.twice[_LATE], memory)]
    twice = sum(consumer.twice.values())
    times = {"before": (consumer.arrivals[0][0], due), "meanwhile": (due, sent[-1]), "after": (sent[-1], time.time())}
    for name, (since, until) in times.items():
        late = [one for at, one in consumer.arrivals if since <= at < until]
        figures.append(_figures(f"timed lane, {name}", late, until - since, twice, memory))
    return figures


def _figures(of: str, late: list[float], seconds: float, twice: int, memory: int) -> dict[str, Any]:
    return {
        "of": of,
        "messages": len(late),
        "seconds": seconds,
        "rows_s": round(len(late) / seconds),
        **figures_of(late),
        "twice": twice,
        "memory_mb": memory,
    }


def _put(kafka: dict[str, str], home: Path, rows: int, ahead: int) -> float:
    """Creates the tables, with a backlog; returns the time at which it falls due, in seconds since 1970."""
    loop = Loop(load_settings(home=home / "state", kafka={**kafka, "log_level": "0"}))
    loop.start()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=ahead)
    fill_wheel(loop.spark, loop.schema, "late", rows, due, 1_000, loop.ledgers.batch)
    loop.close()
    loop.spark.stop()
    return due.timestamp()
