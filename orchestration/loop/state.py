"""The state of the loop: one value, which a row of the ledger `ticks` keeps. A start goes on from the last row, and finds out anew what
a row doesn't keep: see SendWindow.

The columns on disk are older than these fields: `positions` is one map for everything that is a number, and its keys say what each number
is. Only this module translates between columns and fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from pyspark.sql import Row

from orchestration.loop.circuit_breaker import CircuitBreaker
from orchestration.loop.consumer_progress import Awaited, Place
from orchestration.loop.health import Reason
from orchestration.loop.issued import IssuedCommands
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.window import PausedDestination, SendWindow

Kind: TypeAlias = Literal["start", "tick", "end"]

# The keys of the column `positions` that are no partition's. A partition's is `topic id/number`.
_SOURCE = "source:"
_COMMAND = "command:"
_COMMANDS_SINCE = "commands"
_DECISION_FEED = "decision_feed"
# the name of _DECISION_FEED in rows of earlier versions
_ANNOUNCED = "announced"
_AWAITED = "awaited"


@dataclass(frozen=True)
class LoopState:
    """Where the loop stands. In a tick, the reducer (steps.py) replaces it by what a step returns; a start and a recovery read it anew.

    tick: its number within the generation. kind: of the row that is written next. watermark: the last batch that is decided.
    loop_time: when the row is written.
    window: where publishing stands; a row keeps its floor and its paused destinations.
    offsets: how far the sources are read. commands: how much of operators' commands was issued.
    feed_batch: the last batch whose decisions are in the decision feed; None where there is no feed.
    breakers: by key; a row keeps what CircuitBreaker says.
    awaited, awaited_batch: the places whose sends aren't settled yet, and the last batch whose sends were added to them.
    settled: the places of which this tick saw that more is settled, and up to which offset.
    counts, step_ms: what this tick did, and how long its steps took.
    """

    tick: int
    kind: Kind
    generation: int
    instance: str
    watermark: int
    loop_time: datetime
    window: SendWindow
    slots: int
    offsets: SourceOffsets = field(default_factory=SourceOffsets)
    commands: IssuedCommands = field(default_factory=IssuedCommands)
    feed_batch: int | None = None
    awaited_batch: int = 0
    breakers: Mapping[str, CircuitBreaker] = field(default_factory=dict)
    settled: Mapping[Place, int] = field(default_factory=dict)
    awaited: tuple[Awaited, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    step_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def undecided_after(self) -> int | None:
        """The last batch that is decided, where there are inputs after it: see Due."""
        return self.watermark if self.window.undecided else None

    def began(self, tick: int) -> LoopState:
        """At the beginning of a tick: nothing is done in it yet."""
        return replace(self, tick=tick, kind="tick", settled={}, counts={}, step_ms={})

    def of_kind(self, kind: Kind) -> LoopState:
        """For a row that records no tick: of a start, of an end, or one that seals the ledger."""
        return replace(self, kind=kind, counts={}, step_ms={})

    @classmethod
    def from_row(cls, row: Row | Mapping[str, Any]) -> LoopState:
        """From a row of `ticks`. Columns that an earlier version did not write are null."""
        positions = dict(row["positions"] or {})
        return cls(
            tick=row["tick"],
            kind=row["kind"],
            generation=row["generation"],
            instance=row["instance"],
            watermark=int(row["watermark"]),
            loop_time=row["loop_time"],
            window=SendWindow(row["floor"], {topic: _paused(one) for topic, one in dict(row["paused_destinations"] or {}).items()}),
            slots=row["slots"],
            commands=IssuedCommands(positions.pop(_COMMANDS_SINCE, 0), _taken(positions, _COMMAND)),
            feed_batch=_feed_batch(positions),
            awaited_batch=positions.pop(_AWAITED, 0),
            offsets=SourceOffsets(started=frozenset(_taken(positions, _SOURCE)), next=positions),
            breakers={key: CircuitBreaker.from_row(breaker) for key, breaker in dict(row["circuit_breakers"] or {}).items()},
            settled={_place(one): one["offset"] for one in row["settled"] or ()},
            awaited=tuple(Awaited(_place(one), one["sent"], one["settled"]) for one in row["awaited"] or ()),
            counts=dict(row["counts"] or {}),
            step_ms=dict(row["step_ms"] or {}),
        )

    def as_row(self) -> dict[str, Any]:
        """As a row of `ticks`, by column; without those that each append adds."""
        return {
            "tick": self.tick,
            "kind": self.kind,
            "generation": self.generation,
            "instance": self.instance,
            "watermark": self.watermark,
            "floor": self.window.floor,
            "loop_time": self.loop_time,
            "positions": self._positions(),
            "paused_destinations": {
                topic: {"until": one.until, "pause_ms": round(one.pause / timedelta(milliseconds=1)), "floor": one.floor, "why": one.why}
                for topic, one in self.window.paused.items()
            },
            "circuit_breakers": {key: breaker.as_row() for key, breaker in self.breakers.items()},
            "settled": [{**place._asdict(), "offset": offset} for place, offset in self.settled.items()],
            "awaited": [{**one.place._asdict(), "sent": one.sent, "settled": one.settled} for one in self.awaited],
            "slots": self.slots,
            "counts": dict(self.counts),
            "step_ms": dict(self.step_ms),
        }

    def _positions(self) -> dict[str, int]:
        positions = dict(self.offsets.next)
        positions.update({f"{_SOURCE}{name}": 1 for name in sorted(self.offsets.started)})
        positions.update({f"{_COMMAND}{command}": number for command, number in self.commands.issued.items()})
        if self.commands.since:
            positions[_COMMANDS_SINCE] = self.commands.since
        if self.feed_batch is not None:
            positions[_DECISION_FEED] = self.feed_batch
        if self.awaited_batch:
            positions[_AWAITED] = self.awaited_batch
        return positions


def _taken(positions: dict[str, int], prefix: str) -> dict[str, int]:
    """Removes the entries whose key begins with the prefix; returns them by the rest of their key."""
    found = [key for key in positions if key.startswith(prefix)]
    return {key.removeprefix(prefix): positions.pop(key) for key in found}


def _feed_batch(positions: dict[str, int]) -> int | None:
    before = positions.pop(_ANNOUNCED, None)
    return positions.pop(_DECISION_FEED, before)


def _paused(row: Row | Mapping[str, Any]) -> PausedDestination:
    pause = timedelta(milliseconds=row["pause_ms"])
    return PausedDestination(Reason.stored(row["why"]), row["until"], pause, floor=row["floor"])


def _place(row: Row | Mapping[str, Any]) -> Place:
    return Place(row["consumer_group"], row["topic"], row["partition"])
