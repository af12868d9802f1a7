"""Where a loop that is to be killed dies: after, or in place of, what a point names, or while it is done.

A point is arranged in the process of the loop, before the loop is made: parts of the program are replaced by ones that call `die`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import orchestration.loop.open_slot
import orchestration.loop.sending
from orchestration.loop.commands import Commands
from orchestration.loop.intake import Intake
from orchestration.loop.lane import TimedLane
from orchestration.loop.loop import Loop
from orchestration.loop.outboxes import Outboxes
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.takeover import TakeOver
from orchestration.outbox.database import OutboxTable
from orchestration.settings import Settings
from orchestration.tables.decide_statements import DecideRunner
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.maintenance import maintain
from publisher import PublisherSettings, Session, publish

POINTS = (
    "after intake",
    "after the offsets' commit",
    "after the decide step",
    "in the middle of sending",
    "before the results' append",
    "before the ticks row",
)
"""The points that every loop passes that takes in, decides and sends something."""


def put(owner: object, name: str, instead: object) -> None:
    """Puts something in the place of a part of the program, for as long as this process lives."""
    setattr(owner, name, instead)


@dataclass(frozen=True)
class Death:
    """How the process dies: `die`, which is called at the point; for points within something, after_ms from its beginning."""

    die: Callable[[], None]
    settings: Settings
    after_ms: int = 0


def arrange(point: str, death: Death) -> None:
    """Makes the process kill itself at a point. Raises ValueError: there is no such point."""
    if point not in _ARRANGED:
        raise ValueError(f"no such point: {point}")
    _ARRANGED[point](death)


def _around(
    owner: type,
    name: str,
    first: Callable[[Death], None] = lambda _: None,
    dies_if: Callable[..., bool] = lambda *_: False,
) -> Callable[[Death], None]:
    """Does something before each call of a method. dies_if: whether the process dies after it, by what it returned and its arguments."""

    def arranged(death: Death) -> None:
        method = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            first(death)
            returned = method(*arguments, **options)
            if dies_if(returned, *arguments):
                death.die()
            return returned

        put(owner, name, call)

    return arranged


def _after(owner: type, name: str, dies_if: Callable[..., bool] = lambda *_: True) -> Callable[[Death], None]:
    """Dies after a call of a method."""
    return _around(owner, name, dies_if=dies_if)


def _before(owner: type, name: str) -> Callable[[Death], None]:
    """Dies in place of a call of a method."""
    return _around(owner, name, lambda death: death.die())


def _during(owner: type, name: str) -> Callable[[Death], None]:
    """Dies some time after a method was called, usually before it returns."""
    return _around(owner, name, _later)


def _returned(returned: Any, *_: Any) -> bool:
    """Whether a method returned something, such as the number of rows that it took."""
    return bool(returned)


def _later(death: Death) -> None:
    timer = threading.Timer(death.after_ms / 1000, death.die)
    timer.daemon = True
    timer.start()


def _in_the_middle_of_sending(death: Death) -> None:
    for owner in (orchestration.loop.sending, orchestration.loop.open_slot):
        _before_a_commit(owner, death.die)


def _while_both_lanes_send(death: Death) -> None:
    """Each lane waits for the other one with rows that were handed to the client; the bulk lane does so in a worker of Spark's."""

    def die_if_met(mine: Path, other: Path) -> None:
        mine.touch()
        deadline = time.monotonic() + 15
        while not other.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        mine.unlink(missing_ok=True)
        if other.exists():
            death.die()

    bulk, timed = death.settings.home / "bulk-sends", death.settings.home / "lane-sends"
    _before_a_commit(orchestration.loop.sending, partial(die_if_met, bulk, timed))
    _before_a_commit(orchestration.loop.open_slot, partial(die_if_met, timed, bulk))


def _before_a_commit(owner: object, act: Callable[[], None]) -> None:
    """Does something when a lane has handed rows to the client, before their transaction is committed."""

    def send(
        batches: Iterable[pa.RecordBatch],
        settings: PublisherSettings,
        slot: int,
        clock: Callable[[], int],
        kept: Session | None = None,
    ) -> Iterator[pa.RecordBatch]:
        def last_time() -> int:
            act()
            return clock()

        return publish(batches, settings, slot, last_time, kept)

    put(owner, "publish", send)


def _before_an_append_to(fatal: str) -> Callable[[Death], None]:
    """Dies in place of the append; how many results were to be appended is written into the file `unrecorded`."""

    def arranged(death: Death) -> None:
        append = Ledgers.append

        def die_instead(self: Ledgers, ledger: str, rows: DataFrame | pa.Table, *when: Any) -> int:
            if ledger == fatal:
                found = rows if isinstance(rows, pa.Table) else rows.select("kind").toArrow()
                if "start" not in found.column("kind").to_pylist():
                    if ledger == "publish_results":
                        (death.settings.home / "unrecorded").write_text(str(found.num_rows))
                    death.die()
            return append(self, ledger, rows, *when)

        put(Ledgers, "append", die_instead)

    return arranged


def _inside_a_commit(ledger: str, pattern: str) -> Callable[[Death], None]:
    """Dies as soon as a commit to a table has written a file of its metadata. The row of a start is committed before."""

    def arranged(death: Death) -> None:
        start = Loop.start

        def start_and_watch(self: Loop) -> None:
            start(self)
            directory = death.settings.home / "warehouse" / self.schema / ledger / "metadata"
            there = {*directory.glob(pattern)}

            def watch() -> None:
                while there.issuperset(directory.glob(pattern)):
                    time.sleep(0.001)
                death.die()

            threading.Thread(target=watch, daemon=True).start()

        put(Loop, "start", start_and_watch)

    return arranged


def _during_maintenance(death: Death) -> None:
    """Maintains the tables beside the ticks, as a shift of Dagster's does, and dies meanwhile."""
    start = Loop.start

    def start_and_maintain(self: Loop) -> None:
        start(self)

        def maintain_and_die() -> None:
            _later(death)
            maintain(self.settings, self.spark)

        threading.Thread(target=maintain_and_die, daemon=True).start()

    put(Loop, "start", start_and_maintain)


_ARRANGED: dict[str, Callable[[Death], None]] = {
    "after intake": _after(Intake, "take", _returned),
    "after the offsets' commit": _after(Intake, "commit_offsets"),
    "after the decide step": _after(DecideRunner, "run"),
    "in the middle of sending": _in_the_middle_of_sending,
    "while both lanes send": _while_both_lanes_send,
    "after a hand-over": _after(TimedLane, "hand_over", lambda _, lane, rows: rows.num_rows > 0),
    "after a withdrawal": _after(TimedLane, "withdraw", _returned),
    "before the results' append": _before_an_append_to("publish_results"),
    "before the ticks row": _before_an_append_to("ticks"),
    "after the orders' append": _after(Commands, "_append", _returned),
    # of rows of outboxes
    "after the rows' append": _after(Outboxes, "take", lambda taken, *_: taken[0] > 0),
    "before the write-back": _before(OutboxTable, "write"),
    "after the write-back": _after(OutboxTable, "write"),
    "before rows are marked": _before(OutboxTable, "mark"),
    "after rows are marked": _after(OutboxTable, "mark"),
    # some time after the beginning
    "during a decide run": _during(DecideRunner, "run"),
    "during maintenance": _during_maintenance,
    "during the load of seeds": _during(RulesInForce, "load"),
    "during a takeover": _during(TakeOver, "run"),
    # between two files of one commit
    **{
        f"inside a commit to {table}, {file}": _inside_a_commit(table, pattern)
        for table in ("events", "deliveries", "publish_results", "ticks")
        for file, pattern in (("manifest", "*-m0.avro"), ("manifest list", "snap-*.avro"), ("metadata", "*.metadata.json"))
    },
}
