"""Where a simulated loop crashes: between any two of its effects on tables and topics. Faults are injected; all else is the real program.

Time is simulated, too: the loop's clock moves between the effects only, by what the seed says, and the timed lane sends when it is told to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from pyspark.sql import DataFrame

import orchestration.loop.hand_over
import orchestration.loop.sending
import orchestration.loop.starting_point
from orchestration.clock import LoopClock
from orchestration.loop.intake import Intake
from orchestration.loop.lane import TimedLane
from orchestration.loop.leadership import Leadership
from orchestration.loop.open_slot import OpenSlot
from orchestration.loop.sending import BulkLane
from orchestration.tables.decide_statements import DecideRunner
from orchestration.tables.ledgers import Ledgers
from publisher import PublisherSettings, Session, publish, sending
from tests.simulation.fates import chance

# When simulated time begins. It must be earlier than the broker's time, by which records are stamped: a loop reads back what was
# written since a moment of simulated time, and would miss records with an earlier one.
_BEGINS = datetime(2026, 3, 1, 12, tzinfo=UTC)

# Of the commits of the timed lane, the part that has no answer.
_UNANSWERED = 0.08


class Crash(BaseException):
    """The loop has ended here, as by kill -9."""


@dataclass
class Time:
    """Simulated time. wrong: by how much the wall clock is wrong; the monotonic clock never is."""

    elapsed: timedelta = timedelta()
    wrong: timedelta = timedelta()

    def wall(self) -> datetime:
        """The wall clock."""
        return _BEGINS + self.elapsed + self.wrong

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self.elapsed.total_seconds()


@dataclass
class Effects:
    """The effects of all loops of a simulation, counted: loops crash between some of them.

    between: effects between two crashes, on average.
    """

    seed: int
    time: Time
    between: int
    crashes: list[str] = field(default_factory=list)
    beside: Callable[[], None] = lambda: None
    """Called where the timed lane may send while a step runs."""
    commits: int = 0
    unanswered: int = 0
    _count: int = 0
    _next: int = 0
    _ends: bool = False

    def __post_init__(self) -> None:
        self._choose()

    def end(self) -> None:
        """From now on, nothing goes wrong."""
        self._ends = True

    def passes(self, where: str) -> None:
        """Called between two effects. Raises Crash."""
        self._count += 1
        self.time.elapsed += timedelta(milliseconds=int(300 * chance(self.seed, "takes", self._count)))
        if self._count >= self._next and not self._ends:
            self._choose()
            self.crashes.append(where)
            raise Crash(where)

    def is_unanswered(self) -> bool:
        """Whether the next commit of the timed lane has no answer."""
        self.commits += 1
        is_unanswered = not self._ends and chance(self.seed, "commit", self.commits) < _UNANSWERED
        self.unanswered += is_unanswered
        return is_unanswered

    def _choose(self) -> None:
        self._next = self._count + 1 + int(2 * self.between * chance(self.seed, "crash", self._count))


@contextmanager
def injected(effects: Effects, messages: int) -> Iterator[None]:
    """Loops that start inside the `with` block have the simulated clock and faults. messages: how many are simulated."""
    with pytest.MonkeyPatch.context() as patch:
        clock = partial(LoopClock, wall=effects.time.wall, monotonic=effects.time.monotonic)
        patch.setattr(orchestration.loop.starting_point, "LoopClock", clock)
        # small, so that a crash leaves a backlog to the bulk lane
        patch.setattr(orchestration.loop.hand_over, "MOST_OVERDUE", messages * 8 // 100)
        patch.setattr(orchestration.loop.hand_over, "MOST_ROWS", messages * 8 // 10)
        # no threads: the simulation calls what they would call
        patch.setattr(TimedLane, "_start", lambda _: None)
        patch.setattr(sending, "_commit", partial(_commit, effects, sending._commit))
        _around(patch, effects, Ledgers, "append", lambda _, ledger, *__: f"the append to {ledger}")
        _around(patch, effects, DecideRunner, "run", lambda *_: "the decide run", beside=True)
        _around(patch, effects, OpenSlot, "publish", lambda *_: "the timed lane's send")
        _around(patch, effects, Intake, "commit_offsets", lambda *_: "the commit of offsets", beside=True)
        _around(patch, effects, Leadership, "fence", lambda *_: "the fence")
        _in_the_bulk_lane(patch, effects)
        yield


def _around(
    patch: pytest.MonkeyPatch, effects: Effects, owner: type, name: str, where: Callable[..., str], *, beside: bool = False
) -> None:
    call = getattr(owner, name)

    def around(self: Any, *arguments: Any, **named: Any) -> Any:
        effects.passes(f"before {where(self, *arguments)}")
        if beside:
            effects.beside()
        result = call(self, *arguments, **named)
        effects.passes(f"after {where(self, *arguments)}")
        return result

    patch.setattr(owner, name, around)


def _commit(effects: Effects, commit: Callable[..., KafkaError | None], producer: Any, deadline: float) -> KafkaError | None:
    if not effects.is_unanswered():
        return commit(producer, deadline)
    if chance(effects.seed, "commits", effects.commits) < 0.5:
        commit(producer, deadline)
    return KafkaError(KafkaError._TIMED_OUT, "no answer")


def _in_the_bulk_lane(patch: pytest.MonkeyPatch, effects: Effects) -> None:
    """Also in the middle of a send: then a worker of Spark's dies with rows that were handed to the client, and the loop with it."""
    send = BulkLane._send

    def sends(self: BulkLane, *arguments: Any) -> DataFrame:
        effects.passes("before the bulk lane's send")
        effects.beside()
        try:
            effects.passes("in the middle of the bulk lane's send")
        except Crash:
            with patch.context() as dying, suppress(Exception):
                dying.setattr(orchestration.loop.sending, "publish", _dying)
                send(self, *arguments)
            raise
        results = send(self, *arguments)
        effects.passes("after the bulk lane's send")
        return results

    patch.setattr(BulkLane, "_send", sends)


def _dying(
    batches: Iterable[pa.RecordBatch], settings: PublisherSettings, slot: int, _: Callable[[], int], kept: Session | None = None
) -> Iterator[pa.RecordBatch]:
    def last_time() -> int:
        # asked when rows were handed to the client, before their transaction is committed
        os._exit(1)

    return publish(batches, settings, slot, last_time, kept)
