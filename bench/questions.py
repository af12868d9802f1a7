"""Measures what questions cost the loop: the time of a tick with 500 new failures, alone and beside them.

An operator asks one question and reads the answer: that is one question as each tick begins. The other cases ask again and again. For
comparison, a process that only counts shows what a tick takes when any process keeps one processor busy.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.answers import command, loop_to_ask
from bench.consumer import beside
from bench.reports import report_failures
from bench.wheel import settle

# Longer than any question may take: the loop cancels it.
_LONG = "select sum(hash(id)) from range(0, 100000000000, 1, 100000)"

_COUNTS = [sys.executable, "-c", "while True: pass"]


def bench_questions(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: seconds of a tick, the median and the longest, and how much longer the median is than alone."""
    runs, rows = (2, 50) if quick else (9, 500)
    loop, environment = loop_to_ask(kafka, home)
    groups, long = command(("dlq", "groups")), command(("sql", _LONG))
    cases = (
        ("alone", None, False),
        ("one dlq groups", groups, True),
        ("one long question", long, True),
        ("dlq groups again and again", groups, False),
        ("long questions again and again", long, False),
        ("a process that counts", _COUNTS, False),
    )
    offset = 0
    took: dict[str, list[float]] = {case: [] for case, _, _ in cases}
    # one tick of each case in turn: the machine's speed changes while this runs
    for run in range(runs + 1):
        for case, program, once in cases:
            offset = report_failures(kafka, "orders", rows, offset)
            with _beside(program, environment, once=once):
                began = time.perf_counter()
                loop.tick()
                seconds = time.perf_counter() - began
            if run:
                took[case].append(seconds)
            settle(loop)
    loop.close()
    alone = statistics.median(took["alone"])
    return [
        {"case": case, "tick_s": statistics.median(seconds), "longest_s": max(seconds), "longer_by_s": statistics.median(seconds) - alone}
        for case, seconds in took.items()
    ]


@contextmanager
def _beside(program: list[str] | None, environment: dict[str, str], *, once: bool) -> Iterator[None]:
    """A program runs inside the `with` block, once or again and again. At its end, it is killed."""
    if program is None:
        yield
        return
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        running[:] = [subprocess.Popen(program, env=environment, stdout=quiet, stderr=quiet)]
        return running[0]

    def run(ends: threading.Event) -> None:
        while not ends.is_set():
            start().wait()
            if once:
                return

    def kill() -> None:
        for process in running:
            process.kill()

    with beside(run, kill):
        yield
