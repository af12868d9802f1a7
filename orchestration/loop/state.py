"""The state of the loop: one value, which a row of the ledger `ticks` keeps. A start goes on from the last row, and finds out anew what
a row doesn't keep: see SendWindow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from pyspark.sql import Row

from orchestration.loop.circuit_breaker import CircuitBreaker
from orchestration.loop.consumer_progress import Awaited, Place
from orchestration.loop.due import Due
from orchestration.loop.earlier_rows import in_columns_of_today
from orchestration.loop.health import Reason
from orchestration.loop.issued import IssuedCommands
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.window import PausedDestination, SendWindow

# For rows of earlier versions: how long before a row of `ticks` something may have been sent without a result by then.
_LONGEST_UNRECORDED = timedelta(minutes=10)

Kind: TypeAlias = Literal["start", "tick", "end"]


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
    outboxes: by name, how far their rows are written back.
    settled: the places whose settled offset has changed in this tick, and that offset.
    unrecorded_since: what was sent earlier has a result in `publish_results`; None: everything has.
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
    outboxes: Mapping[str, OutboxPosition] = field(default_factory=dict)
    settled: Mapping[Place, int] = field(default_factory=dict)
    awaited: tuple[Awaited, ...] = ()
    unrecorded_since: datetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    step_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def undecided_after(self) -> int | None:
        """The last batch that is decided, where there are inputs after it: see Due."""
        return self.watermark if self.window.undecided else None

    def due(
        self, upto: datetime, now: datetime, in_lane: frozenset[str] = frozenset(), *, in_order: bool | None = None, followers: bool = False
    ) -> Due:
        """What is due, and may be sent now, except to paused destinations. in_lane, in_order, followers: as in Due."""
        return Due(
            self.window.floor,
            upto,
            now,
            without=tuple(self.window.paused),
            undecided_after=self.undecided_after,
            in_lane=in_lane,
            in_order=in_order,
            followers=followers,
            open_from=self.window.lowest_floor,
        )

    def began(self) -> LoopState:
        """At the beginning of the next tick: nothing is done in it yet. What a start has done is part of the first tick."""
        done = (self.counts, self.step_ms) if self.tick == 0 else ({}, {})
        return replace(self, tick=self.tick + 1, kind="tick", settled={}, counts=done[0], step_ms=done[1])

    def of_kind(self, kind: Kind) -> LoopState:
        """For a row that records no tick: of a start, of an end, or one that seals the ledger."""
        return replace(self, kind=kind, counts={}, step_ms={})

    @classmethod
    def from_row(cls, row: Row | Mapping[str, Any]) -> LoopState:
        """From a row of `ticks`. Columns that an earlier version did not write are null."""
        row = in_columns_of_today(row)
        return cls(
            tick=row["tick"],
            kind=row["kind"],
            generation=row["generation"],
            instance=row["instance"],
            watermark=int(row["watermark"]),
            loop_time=row["loop_time"],
            window=SendWindow(row["floor"], {topic: _paused(one) for topic, one in dict(row["paused_destinations"] or {}).items()}),
            slots=row["slots"],
            offsets=SourceOffsets(dict(row["next_offsets"] or {}), frozenset(row["started_sources"])),
            commands=IssuedCommands(row["commands_since"], dict(row["commands_issued"])),
            feed_batch=row["feed_batch"],
            awaited_batch=row["awaited_batch"],
            breakers={key: CircuitBreaker.from_row(breaker) for key, breaker in dict(row["circuit_breakers"] or {}).items()},
            outboxes={name: OutboxPosition.from_row(one) for name, one in dict(row.get("outboxes") or {}).items()},
            settled={_place(one): one["offset"] for one in row["settled"] or ()},
            awaited=tuple(Awaited(_place(one), one["sent"], one["settled"]) for one in row["awaited"] or ()),
            unrecorded_since=_unrecorded_since(row),
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
            "next_offsets": dict(self.offsets.next),
            "started_sources": sorted(self.offsets.started),
            "commands_since": self.commands.since,
            "commands_issued": dict(self.commands.issued),
            "feed_batch": self.feed_batch,
            "awaited_batch": self.awaited_batch,
            "paused_destinations": {topic: _pause_as_row(one) for topic, one in self.window.paused.items()},
            "circuit_breakers": {key: breaker.as_row() for key, breaker in self.breakers.items()},
            "settled": [{**place._asdict(), "offset": offset} for place, offset in self.settled.items()],
            "awaited": [{**one.place._asdict(), "sent": one.sent, "settled": one.settled} for one in self.awaited],
            "unrecorded_since": self.unrecorded_since,
            "outboxes": {name: one.as_row() for name, one in self.outboxes.items()},
            "slots": self.slots,
            "counts": dict(self.counts),
            "step_ms": dict(self.step_ms),
        }


def _unrecorded_since(row: Row | Mapping[str, Any]) -> datetime | None:
    """As in the row; for one that an earlier version wrote, some minutes before it, unless its loop ended normally."""
    since: datetime | None = row.asDict().get("unrecorded_since") if isinstance(row, Row) else row.get("unrecorded_since")
    if row["kind"] == "end" or since is not None:
        return since
    loop_time: datetime = row["loop_time"]
    return loop_time - _LONGEST_UNRECORDED


def _paused(row: Row | Mapping[str, Any]) -> PausedDestination:
    pause = timedelta(milliseconds=row["pause_ms"])
    return PausedDestination(Reason(row["why"], row["error"]), row["until"], pause, floor=row["floor"])


def _pause_as_row(one: PausedDestination) -> dict[str, Any]:
    pause_ms = round(one.pause / timedelta(milliseconds=1))
    return {"until": one.until, "pause_ms": pause_ms, "floor": one.floor, "why": one.why, "error": one.reason.error}


def _place(row: Row | Mapping[str, Any]) -> Place:
    return Place(row["consumer_group"], row["topic"], row["partition"])
