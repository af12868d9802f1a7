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
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import orchestration.loop.hand_over
import orchestration.loop.sending
import orchestration.loop.starting_point
import orchestration.loop.takeover
from orchestration.cli.ending import SUPERSEDED_EXIT
from orchestration.clock import LoopClock, wall_clock
from orchestration.loop.intake import Intake
from orchestration.loop.lane import TimedLane
from orchestration.loop.loop import Loop
from orchestration.loop.outboxes import Outboxes
from orchestration.outbox.database import OutboxTable
from orchestration.settings import load_settings
from orchestration.tables.decide_statements import DecideRunner
from orchestration.tables.ledgers import Ledgers
from publisher import PublisherSettings, Session, publish

POINTS = (
    "after intake",
    "after the offsets' commit",
    "after the decide step",
    "in the middle of sending",
    "before the results' append",
    "before the ticks row",
)
"""The points that every loop passes that takes in, decides and sends something.

Of rows of outboxes: `after the rows' append`, `before the write-back`, `after the write-back`.

Others: `after the orders' append`, where a command is carried out; with a timed lane, `after a hand-over`, `while both lanes send`, and
`after a withdrawal`, where what the lane has is taken back.
"""

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

    _arrange(told.get("die"), die, settings.home)
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

    _put(orchestration.loop.starting_point, "LoopClock", partial(LoopClock, wall=wall))
    return lambda: began.append(time.monotonic())


def _put(owner: object, name: str, instead: object) -> None:
    """Puts something in the place of a part of the program, for as long as this process lives."""
    setattr(owner, name, instead)


def _arrange(point: str | None, die: Callable[[], None], home: Path) -> None:
    """Makes the process kill itself after, or in place of, what `point` names. None: nowhere."""
    match point:
        case None:
            return
        case "after intake":
            _die_after_intake(die)
        case "after the offsets' commit":
            _die_after_the_commit_of_offsets(die)
        case "after the decide step":
            _die_after_the_decide_step(die)
        case "in the middle of sending":
            _die_in_the_middle_of_sending(die)
        case "while both lanes send":
            _die_while_both_lanes_send(die, home)
        case "after a hand-over":
            _die_after_a_hand_over(die)
        case "after a withdrawal":
            _die_after_a_withdrawal(die)
        case "before the results' append":
            _die_before_an_append_to("publish_results", die, home / "unrecorded")
        case "before the ticks row":
            _die_before_an_append_to("ticks", die, home / "unrecorded")
        case "after the rows' append":
            _die_after(Outboxes, "take", die, if_returned=lambda taken: taken[0] > 0)
        case "before the write-back":
            _die_before(OutboxTable, "write", die)
        case "after the write-back":
            _die_after(OutboxTable, "write", die)
        case "after the orders' append":
            _die_after_the_append_of_orders(die)
        case _:
            raise ValueError(f"no such point: {point}")


def _die_after(owner: type, name: str, die: Callable[[], None], if_returned: Callable[[Any], bool] = lambda _: True) -> None:
    """Dies after a call of a method."""
    method = getattr(owner, name)

    def call_and_die(*arguments: Any, **options: Any) -> Any:
        returned = method(*arguments, **options)
        if if_returned(returned):
            die()
        return returned

    _put(owner, name, call_and_die)


def _die_before(owner: type, name: str, die: Callable[[], None]) -> None:
    """Dies in place of a call of a method."""
    method = getattr(owner, name)

    def die_first(*arguments: Any, **options: Any) -> Any:
        die()
        return method(*arguments, **options)

    _put(owner, name, die_first)


def _die_after_intake(die: Callable[[], None]) -> None:
    take = Intake.take

    def take_and_die(self: Intake, *arguments: Any) -> int:
        taken = take(self, *arguments)
        if taken:
            die()
        return taken

    _put(Intake, "take", take_and_die)


def _die_after_the_commit_of_offsets(die: Callable[[], None]) -> None:
    commit = Intake.commit_offsets

    def commit_and_die(self: Intake) -> None:
        commit(self)
        die()

    _put(Intake, "commit_offsets", commit_and_die)


def _die_after_the_decide_step(die: Callable[[], None]) -> None:
    run = DecideRunner.run

    def decide_and_die(self: DecideRunner, *how: Any) -> None:
        run(self, *how)
        die()

    _put(DecideRunner, "run", decide_and_die)


def _die_in_the_middle_of_sending(die: Callable[[], None]) -> None:
    def send_and_die(
        batches: Iterable[pa.RecordBatch],
        settings: PublisherSettings,
        slot: int,
        clock: Callable[[], int],
        kept: Session | None = None,
    ) -> Iterator[pa.RecordBatch]:
        def last_time() -> int:
            # asked when rows were handed to the client, before their transaction is committed
            die()
            return clock()

        return publish(batches, settings, slot, last_time, kept)

    _put(orchestration.loop.sending, "publish", send_and_die)
    _put(orchestration.loop.hand_over, "publish", send_and_die)


def _die_while_both_lanes_send(die: Callable[[], None], home: Path) -> None:
    """Each lane waits for the other one with rows that were handed to the client; the bulk lane does so in a worker of Spark's."""

    def met(mine: Path, other: Path) -> bool:
        mine.touch()
        deadline = time.monotonic() + 15
        while not other.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        mine.unlink(missing_ok=True)
        return other.exists()

    def lane_of(owner: object, mine: Path, other: Path) -> None:
        def send_and_die(
            batches: Iterable[pa.RecordBatch],
            settings: PublisherSettings,
            slot: int,
            clock: Callable[[], int],
            kept: Session | None = None,
        ) -> Iterator[pa.RecordBatch]:
            def last_time() -> int:
                if met(mine, other):
                    die()
                return clock()

            return publish(batches, settings, slot, last_time, kept)

        _put(owner, "publish", send_and_die)

    lane_of(orchestration.loop.sending, home / "bulk-sends", home / "lane-sends")
    lane_of(orchestration.loop.hand_over, home / "lane-sends", home / "bulk-sends")


def _die_after_a_hand_over(die: Callable[[], None]) -> None:
    hand_over = TimedLane.hand_over

    def hand_over_and_die(self: TimedLane, rows: pa.Table) -> None:
        hand_over(self, rows)
        if rows.num_rows:
            die()

    _put(TimedLane, "hand_over", hand_over_and_die)


def _die_after_a_withdrawal(die: Callable[[], None]) -> None:
    withdraw = TimedLane.withdraw

    def withdraw_and_die(self: TimedLane, **which: Any) -> int:
        taken = withdraw(self, **which)
        if taken:
            die()
        return taken

    _put(TimedLane, "withdraw", withdraw_and_die)


def _die_before_an_append_to(fatal: str, die: Callable[[], None], unrecorded: Path) -> None:
    """Dies in place of the append; how many results were to be appended is written into the file `unrecorded`."""
    append = Ledgers.append

    def die_instead(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        if ledger == fatal and not rows.where("kind = 'start'").count():
            if ledger == "publish_results":
                unrecorded.write_text(str(rows.count()))
            die()
        return append(self, ledger, rows, *when)

    _put(Ledgers, "append", die_instead)


def _die_after_the_append_of_orders(die: Callable[[], None]) -> None:
    append_orders = Ledgers.append

    def append_and_die(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        batch = append_orders(self, ledger, rows, *when)
        if ledger == "events" and {"command", "delivery_id"} <= {*rows.columns}:
            die()
        return batch

    _put(Ledgers, "append", append_and_die)


if __name__ == "__main__":
    main(sys.argv[1])
