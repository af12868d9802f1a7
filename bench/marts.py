"""Measures queries of dead letters over large tables: up to 10 million deliveries, of which one in a hundred has died.

The deliveries are put into the tables directly, as a loop would have left them over a day: 500-byte values, dead letters among
retries in the same files, with stacks of 2 kB and ten classes of errors. Maintenance runs after each fill, as it does each night. The
queries are those of `redrive dlq`, each run three times. Each size adds rows to those of the size before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.redrive import DIED
from bench.reports import report_failures
from bench.wheel import acknowledge, fill_wheel, settle
from orchestration.loop.loop import Loop
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.selections import Selection
from orchestration.settings import load_settings
from orchestration.tables.maintenance import maintain

_DAY = timedelta(days=1)
_ONE_IN = 100
_RUNS = 3
_OPEN = Selection(state="open")


def bench_marts(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per size: deliveries, dead letters, and median seconds to list, show, group, count and relate them."""
    sizes = (10_000, 20_000) if quick else (100_000, 1_000_000, 10_000_000)
    settings = load_settings(home=home / "state", kafka={**kafka, "log_level": "0"})
    loop = Loop(settings)
    loop.start()
    now = datetime.now(UTC)
    since = now.replace(minute=0, second=0, microsecond=0) - 2 * _DAY
    dead = DeadLetters(settings)
    figures: list[dict[str, Any]] = []
    filled = 0
    for size in sizes:
        began = time.perf_counter()
        _fill(loop, f"orders{size}", size - filled, since)
        filled = size
        print(f"{size:,} deliveries: filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        # one later decision, so that the watermark is above the filled rows and maintenance may rewrite them
        report_failures(kafka, f"last{size}", 1, 0)
        settle(loop)
        began = time.perf_counter()
        maintain(settings, loop.spark)
        print(f"{size:,} deliveries: maintained in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        one = str(dead.find(_OPEN, 1).rows[0][0])
        asked: dict[str, Callable[[], object]] = {
            "list": lambda: dead.find(_OPEN, 50),
            "list_a_class": lambda: dead.find(Selection(state="open", error_class="Step3Exception"), 50),
            "show": lambda one=one: dead.get(one),  # type: ignore[misc]  # mypy infers no lambda with a default
            "groups": lambda: dead.groups(_OPEN, 50),
            "stats": lambda: dead.stats(now, None, 50),
            "related": lambda one=one: dead.related(one, 50),  # type: ignore[misc]  # mypy infers no lambda with a default
        }
        figures.append({"deliveries": size, "dead": size // _ONE_IN, **{f"{name}_s": _median(ask) for name, ask in asked.items()}})
        print(figures[-1], file=sys.stderr)
    loop.close()
    return figures


def _median(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _fill(loop: Loop, topic: str, rows: int, since: datetime) -> None:
    """Deliveries of a day, all of them sent."""
    died = {name: f"case when id % {_ONE_IN} = 0 then {expression} end" for name, expression in DIED.items()}
    others = {"decision": "'retry'", "reason": "'retriable'", "kind": "'retry'", "topic": f"'{topic}-billing-retry'"}
    but = {name: f"coalesce({expression}, {others[name]})" if name in others else expression for name, expression in died.items()}
    fill_wheel(loop.spark, loop.schema, topic, rows, since, _DAY // timedelta(milliseconds=1), loop.ledgers.batch, but)
    acknowledge(loop, topic)
