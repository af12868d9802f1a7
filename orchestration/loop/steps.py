"""What a step is: it takes the state and returns what it did. One reducer applies that: no step changes the state of the loop itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from orchestration.loop.health import Health, Part, Reason
from orchestration.loop.state import LoopState

Lateness: TypeAlias = tuple[int, int]
"""Of what was sent: the median and the 99th percentile of milliseconds after the due time."""

TIMED, BULK = "timed", "bulk"
"""The lanes."""


@dataclass(frozen=True)
class Sent:
    """What a lane has delivered, and how late."""

    delivered: int = 0
    lateness_ms: Lateness | None = None

    def __add__(self, more: Sent) -> Sent:
        return Sent(self.delivered + more.delivered, later(self.lateness_ms, more.lateness_ms))


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    state: the state after it. counts: rows by what happened to them; step_ms: milliseconds by step; both add to those of the tick. trouble:
    parts that fail, with the reason, or that work (None), in the order in which this was found. failure: the error that ended the step;
    what it has done before is in the state. superseded_by: the generation that has taken over. has_more: whether there is more to do at
    once. unread: the topics and patterns that a source speaks for, of all sources not completely read; None: not known to the step.
    also_unread: more of them, of other sources than topics. unsure:
    whether it is unknown what the tables hold; None: as before (see Health). sent: by lane.
    """

    state: LoopState
    counts: Mapping[str, int] = field(default_factory=dict)
    step_ms: Mapping[str, int] = field(default_factory=dict)
    trouble: tuple[tuple[Part, Reason | None], ...] = ()
    failure: Exception | None = None
    superseded_by: int | None = None
    has_more: bool = False
    unread: frozenset[str] | None = None
    also_unread: frozenset[str] = frozenset()
    unsure: bool | None = None
    sent: Mapping[str, Sent] = field(default_factory=dict)


class Step(Protocol):
    """One step of a tick."""

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Does what there is to do. Raises only what ends the process: anything else is the result's failure."""


@dataclass
class StepReport:
    """Gathers a step's result while it runs."""

    state: LoopState
    counts: dict[str, int] = field(default_factory=dict)
    step_ms: dict[str, int] = field(default_factory=dict)
    trouble: list[tuple[Part, Reason | None]] = field(default_factory=list)
    superseded_by: int | None = None
    has_more: bool = False
    unread: frozenset[str] | None = None
    also_unread: frozenset[str] = frozenset()
    unsure: bool | None = None
    sent: dict[str, Sent] = field(default_factory=dict)

    def change(self, **fields: Any) -> None:
        """Changes fields of the state."""
        self.state = replace(self.state, **fields)

    def count(self, name: str, rows: int) -> None:
        """Counts rows by what happened to them."""
        self.counts[name] = self.counts.get(name, 0) + rows

    def has_sent(self, lane: str, sent: Sent) -> None:
        """Adds what a lane has delivered."""
        self.sent[lane] = self.sent.get(lane, Sent()) + sent

    def took(self, step: str, began: float) -> None:
        """Notes how long the step took. began: a monotonic time."""
        self.step_ms[step] = round((time.monotonic() - began) * 1000)

    def failed(self, part: Part, reason: Reason) -> None:
        """Something doesn't work."""
        self.trouble.append((part, reason))

    def has_failed(self, part: Part) -> bool:
        """Whether the part's last entry in `trouble` is a failure."""
        said = [reason for about, reason in self.trouble if about == part]
        return bool(said) and said[-1] is not None

    def recovered(self, part: Part) -> None:
        """It works, again or still."""
        self.trouble.append((part, None))

    def result(self, failure: Exception | None = None) -> StepResult:
        """What the step did. failure: the error that ended it."""
        return StepResult(
            self.state,
            self.counts,
            self.step_ms,
            tuple(self.trouble),
            failure,
            self.superseded_by,
            self.has_more,
            self.unread,
            self.also_unread,
            self.unsure,
            self.sent,
        )


@dataclass(frozen=True)
class Tick:
    """What one tick did: rows by what happened to them, milliseconds by step.

    has_more: whether there is more to do at once. unread: the topics and patterns that a source speaks for, of all sources with reports
    from before the tick that it did not take in; None: not known. sent: by lane.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    step_ms: Mapping[str, int] = field(default_factory=dict)
    sent: Mapping[str, Sent] = field(default_factory=dict)
    has_more: bool = False
    unread: frozenset[str] | None = None

    @property
    def lateness_ms(self) -> Lateness | None:
        """The worse lateness of both lanes; None if nothing was delivered."""
        return sum(self.sent.values(), Sent()).lateness_ms

    @property
    def did_something(self) -> bool:
        """Whether it is worth a row in `ticks`."""
        return any(self.counts.values())


def begin(state: LoopState, tick: Tick) -> tuple[LoopState, Tick]:
    """The state and the tick at the beginning of a tick. What a start has done already belongs to its first tick."""
    return state.began(), replace(tick, has_more=False) if state.tick == 0 else Tick()


def reduce(state: LoopState, tick: Tick, result: StepResult, health: Health) -> tuple[LoopState, Tick]:
    """The state and the tick after a step. state: before it; its counts and milliseconds are those of the tick so far."""
    for part, reason in result.trouble:
        if reason is None:
            health.recovered(part)
        else:
            health.failed(part, reason)
    if result.unsure is not None:
        health.unsure = result.unsure
    counts, step_ms = _added(state.counts, result.counts), _added(state.step_ms, result.step_ms)
    unread = tick.unread if result.unread is None else result.unread
    return replace(result.state, counts=counts, step_ms=step_ms), Tick(
        counts=counts,
        step_ms=step_ms,
        sent={lane: tick.sent.get(lane, Sent()) + result.sent.get(lane, Sent()) for lane in {**tick.sent, **result.sent}},
        has_more=tick.has_more or result.has_more,
        unread=None if unread is None else unread | result.also_unread,
    )


def later(some: Lateness | None, others: Lateness | None) -> Lateness | None:
    """Of two lanes or steps, the worse lateness: median and 99th percentile."""
    return (max(some[0], others[0]), max(some[1], others[1])) if some and others else some or others


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**before, **{name: before.get(name, 0) + number for name, number in more.items()}}
