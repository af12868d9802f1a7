"""Where a loop that is to be killed dies: after, or in place of, what a point names, or while it is done.

A point is arranged in the process of the loop, before the loop is made: parts of the program are replaced by ones that call `die`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import orchestration.loop.hand_over
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


def _after(owner: type, name: str, if_returned: Callable[[Any], bool] = lambda _: True) -> Callable[[Death], None]:
    """Dies after a call of a method, if it returned what counts."""

    def arranged(death: Death) -> None:
        method = getattr(owner, name)

        def call_and_die(*arguments: Any, **options: Any) -> Any:
            returned = method(*arguments, **options)
            if if_returned(returned):
                death.die()
            return returned

        put(owner, name, call_and_die)

    return arranged


def _before(owner: type, name: str) -> Callable[[Death], None]:
    """Dies in place of a call of a method."""

    def arranged(death: Death) -> None:
        method = getattr(owner, name)

        def die_first(*arguments: Any, **options: Any) -> Any:
            death.die()
            return method(*arguments, **options)

        put(owner, name, die_first)

    return arranged


def _during(owner: type, name: str) -> Callable[[Death], None]:
    """Dies some time after a method was called, usually before it returns."""

    def arranged(death: Death) -> None:
        method = getattr(owner, name)

        def call_until_it_dies(*arguments: Any, **options: Any) -> Any:
            _later(death)
            return method(*arguments, **options)

        put(owner, name, call_until_it_dies)

    return arranged


def _later(death: Death) -> None:
    timer = threading.Timer(death.after_ms / 1000, death.die)
    timer.daemon = True
    timer.start()


def _in_the_middle_of_sending(death: Death) -> None:
    def send_and_die(
        batches: Iterable[pa.RecordBatch],
        settings: PublisherSettings,
        slot: int,
        clock: Callable[[], int],
        kept: Session | None = None,
    ) -> Iterator[pa.RecordBatch]:
        def last_time() -> int:
            # asked when rows were handed to the client, before their transaction is committed
            death.die()
            return clock()

        return publish(batches, settings, slot, last_time, kept)

    put(orchestration.loop.sending, "publish", send_and_die)
    put(orchestration.loop.hand_over, "publish", send_and_die)


def _while_both_lanes_send(death: Death) -> None:
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
                    death.die()
                return clock()

            return publish(batches, settings, slot, last_time, kept)

        put(owner, "publish", send_and_die)

    home = death.settings.home
    lane_of(orchestration.loop.sending, home / "bulk-sends", home / "lane-sends")
    lane_of(orchestration.loop.hand_over, home / "lane-sends", home / "bulk-sends")


def _after_a_hand_over(death: Death) -> None:
    hand_over = TimedLane.hand_over

    def hand_over_and_die(self: TimedLane, rows: pa.Table) -> None:
        hand_over(self, rows)
        if rows.num_rows:
            death.die()

    put(TimedLane, "hand_over", hand_over_and_die)


def _before_an_append_to(fatal: str) -> Callable[[Death], None]:
    """Dies in place of the append; how many results were to be appended is written into the file `unrecorded`."""

    def arranged(death: Death) -> None:
        append = Ledgers.append

        def die_instead(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
            if ledger == fatal and not rows.where("kind = 'start'").count():
                if ledger == "publish_results":
                    (death.settings.home / "unrecorded").write_text(str(rows.count()))
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
            # after what is late has died, there is nothing to wait for
            maintain(self.settings, self.spark)

        threading.Thread(target=maintain_and_die, daemon=True).start()

    put(Loop, "start", start_and_maintain)


_ARRANGED: dict[str, Callable[[Death], None]] = {
    "after intake": _after(Intake, "take", bool),
    "after the offsets' commit": _after(Intake, "commit_offsets"),
    "after the decide step": _after(DecideRunner, "run"),
    "in the middle of sending": _in_the_middle_of_sending,
    "while both lanes send": _while_both_lanes_send,
    "after a hand-over": _after_a_hand_over,
    "after a withdrawal": _after(TimedLane, "withdraw", bool),
    "before the results' append": _before_an_append_to("publish_results"),
    "before the ticks row": _before_an_append_to("ticks"),
    "after the orders' append": _after(Commands, "_append", bool),
    # of rows of outboxes
    "after the rows' append": _after(Outboxes, "take", lambda taken: taken[0] > 0),
    "before the write-back": _before(OutboxTable, "write"),
    "after the write-back": _after(OutboxTable, "write"),
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
