"""Measures whether a loop stays as fast over months, and its tables as small, with `retention_days` and maintenance every few days.

Two hours pass between ticks, by the clock that the loop has in place of the wall clock, so 2,000 ticks take 166 days. Each tenth takes in
about 200 reports, of new messages and of first retries that failed. Retries come up to twenty hours later, so each tick sends some 20. At
each hundredth tick, a message dies, and dead letters are kept. Finished messages are kept for eight days, the least that is allowed,
which is nearly the first hundred ticks.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

import orchestration.loop.starting_point
from bench.rules import seeds_with_policies
from bench.soak import RETRIES, TOPIC, Service, data_files, metadata_bytes
from orchestration.clock import LoopClock, whole_ms
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from orchestration.tables.maintenance import maintain

_DAYS = 8
_BETWEEN = timedelta(hours=2)
# the first and the last ticks that are compared end with it
_MAINTAINED_EVERY = 50
_WARM_UP = 40
_REPORTED_EVERY = 10
_NEW_MESSAGES = 100
_POLICY = "exponential(initial=10h, factor=1, max=10h, jitter=0.99, attempts=5)"

_KEPT = "select count(distinct message_id) as messages, count_if(decision = 'dead_letter') as dead from {schema}.deliveries"


@dataclass
class Months:
    """The wall clock of the loop: the machine's, and what is said to have passed since the beginning."""

    passed: timedelta = timedelta()

    def wall(self) -> datetime:
        """UTC, whole milliseconds."""
        return whole_ms(datetime.now(UTC) + self.passed)

    def seconds(self) -> float:
        """Since the beginning of 1970."""
        return self.wall().timestamp()


def bench_retention(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object for the first ticks, and one for the last: median seconds of a tick with reports and of one without, and, after the last
    maintenance of them, bytes of metadata, data files, messages and dead letters in the tables.
    """
    ticks, edge = (200, 50) if quick else (2_000, 100)
    topics = ("redrive.failures", "redrive.failures.dlq", RETRIES, f"{TOPIC}.dlq")
    # brokers refuse records that are an hour ahead of their clocks
    config = {"max.message.bytes": "4000000", "retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    Cluster(kafka).create(NewTopic(name, 3, 1, config=config) for name in topics)
    months = Months()
    settings = load_settings(
        home=home / "state",
        seeds=seeds_with_policies(home, default=_POLICY, patient="exponential(initial=1s)"),
        kafka={**kafka, "log_level": "0"},
        look_ahead_seconds=0,
        retention_days=_DAYS,
        ticks_days=7,
        # files have the machine's time: by the loop's clock, all would be old
        maintenance_orphan_days=3_650,
    )
    orchestration.loop.starting_point.LoopClock = partial(LoopClock, wall=months.wall)  # type: ignore[assignment,attr-defined]
    loop = Loop(settings)
    loop.start()
    service = Service(kafka, months.seconds)
    took: dict[bool, list[float]] = {True: [], False: []}
    maintained: list[float] = []
    rows: list[dict[str, Any]] = []
    for number in range(-_WARM_UP, ticks):
        months.passed += _BETWEEN
        has_reports = number % _REPORTED_EVERY == 0
        if has_reports:
            service.fail(_NEW_MESSAGES, dies=number % 100 == 0)
        began = time.perf_counter()
        tick = loop.tick()
        if number < 0:
            continue
        took[has_reports].append(time.perf_counter() - began)
        if (number + 1) % _MAINTAINED_EVERY == 0:
            report = maintain(settings, loop.spark, months.wall())
            maintained.append(sum(table.milliseconds for table in report.tables) / 1000)
        if (number + 1) % edge == 0:
            figures = {"report_tick_s": statistics.median(took[True]), "other_tick_s": statistics.median(took[False])}
            print(f"{number + 1} ticks: {figures}, {tick.counts} {tick.step_ms} {_tables(loop)}", file=sys.stderr)
            took = {True: [], False: []}
        if number + 1 in (edge, ticks):
            case = f"ticks {number + 2 - edge:,} to {number + 1:,}"
            rows.append({"case": case, **figures, "maintenance_s": statistics.median(maintained[-2:]), **_tables(loop)})
    loop.close()
    service.close()
    first, last = rows
    return [*rows, {name: "ratio" if name == "case" else last[name] / max(first[name], 1e-9) for name in first}]


def _tables(loop: Loop) -> dict[str, int]:
    """Bytes of metadata, data files, and what is kept."""
    (kept,) = loop.spark.sql(_KEPT.format(schema=loop.schema)).collect()
    return {
        "metadata_bytes": metadata_bytes(loop),
        "data_files": data_files(loop),
        "messages": int(kept["messages"]),
        "dead_letters": int(kept["dead"]),
    }
