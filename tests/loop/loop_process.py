"""A loop in its own process, to be killed: `python -m tests.loop.loop_process '{"settings": {...}, "die": "after the decide step"}'`.

Where it is to die it kills, with SIGKILL, the processes that belong to it: itself, Spark and Spark's Python workers; `victims` names some
of them only, see VICTIMS.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import orchestration.loop.hand_over
import orchestration.loop.starting_point
import orchestration.loop.takeover
from orchestration.cli.ending import SUPERSEDED_EXIT
from orchestration.clock import LoopClock, wall_clock
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from tests.loop.kill_points import Death, arrange, put

VICTIMS: dict[str, Callable[[str], bool]] = {
    "all": lambda _: True,
    "all but workers": lambda command: "pyspark" not in command or "java" in command.split("\0")[0],
    "Spark": lambda command: "java" in command.split("\0")[0],
    "workers": lambda command: "pyspark" in command and "java" not in command.split("\0")[0],
}
"""Which processes are killed, by their command line. The loop's own is killed with `all` and `all but workers`."""


def family(root: int) -> list[int]:
    """A process and all that descend from it, the youngest first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found[::-1]


def send_to_family(root: int, number: signal.Signals, victims: str = "all") -> None:
    """Signals a process and its descendants, or those of them that VICTIMS says; this process last, if it is one of them."""
    for process in sorted(family(root), key=lambda other: other == os.getpid()):
        try:
            chosen = victims.startswith("all") if process == root else VICTIMS[victims](Path(f"/proc/{process}/cmdline").read_text())
            if chosen:
                os.kill(process, number)
        except (FileNotFoundError, ProcessLookupError):
            pass


def main(argument: str) -> None:
    """Runs the loop until nothing waits, or until it dies."""
    told = json.loads(argument)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = load_settings(**told["settings"])
    root = os.getpid()
    victims = told.get("victims", "all")
    killed_at = settings.home / "killed-at"

    def die() -> None:
        # if the loop's own process lives on, it comes by here again
        if not killed_at.exists():
            killed_at.write_text(str(time.time_ns() // 1_000_000))
            send_to_family(root, signal.SIGKILL, victims)
        if victims.startswith("all"):
            signal.pause()

    if told.get("die"):
        arrange(told["die"], Death(die, settings, told.get("after_ms", 0)))
    if told.get("lane_rows"):
        orchestration.loop.hand_over.MOST_ROWS = told["lane_rows"]
    # how long it waits for a loop that it takes over from
    orchestration.loop.takeover._LAST_ROWS = told.get("last_rows", orchestration.loop.takeover._LAST_ROWS)
    set_clock = _set_wall_clock(told.get("wall", []))
    loop = Loop(settings)
    signal.signal(signal.SIGTERM, lambda *_: loop.stopping.set())
    loop.start()
    set_clock()
    loop.run(until_idle=True)
    sys.exit(SUPERSEDED_EXIT if loop.superseded_by is not None else 0)


def _set_wall_clock(steps: list[tuple[float, float]]) -> Callable[[], None]:
    """A wall clock that is set: from so many seconds after the call of what is returned on, it is so many seconds wrong."""
    began: list[float] = []
    told: set[float] = set()

    def wall() -> datetime:
        wrong = [(since, by) for since, by in steps if began and time.monotonic() - began[0] >= since]
        if not wrong:
            return wall_clock()
        since, by = wrong[-1]
        if since not in told:
            told.add(since)
            print(f"the wall clock is set: it is wrong by {by:g} s", file=sys.stderr)
        return wall_clock() + timedelta(seconds=by)

    put(orchestration.loop.starting_point, "LoopClock", partial(LoopClock, wall=wall))
    return lambda: began.append(time.monotonic())


if __name__ == "__main__":
    main(sys.argv[1])
