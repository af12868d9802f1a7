"""Keeps the timed lane filled with what is due soon, and takes back what may not be sent any more.

A look reads only what earlier looks have not seen: what was decided since, and what lies further ahead. All is read again after something
was taken back, or left out for a reason that is over: a paused destination, an open circuit breaker, a send of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import functions as F

from orchestration.clock import EPOCH, LoopClock
from orchestration.loop.due import AT_A_RATE, Due, Seen, Waiting
from orchestration.loop.lane import HANDED, TimedLane
from orchestration.loop.lane_rows import without
from orchestration.loop.lane_schedule import IS_PACED
from orchestration.loop.leadership import TIMED_LANE, Leadership
from orchestration.loop.open_slot import OpenSlot
from orchestration.loop.sending import HORIZON
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport
from orchestration.tables.rows import ids_frame

# What the lane may hold: with commands that issue 3,000 orders a second, all that is due within `look_ahead`.
MOST_ROWS = 100_000
MOST_BYTES = 64 * 1024 * 1024

# If more than this is overdue, it is left to the bulk lane, which is made for backlogs; not what is sent at a rate, or decided later.
MOST_OVERDUE = 20_000

# How long the timed lane goes on sending while its results are not recorded, in seconds: a publish step may keep all processors busy for
# that long. After a crash, a start reads back what was sent in this time, or without transactions, sends it again.
_UNRECORDED = 30.0
_UNRECORDED_AND_SENT_AGAIN = 3.0

# The shortest time between two looks; one that could not hand over everything is followed by the next after this time.
_AGAIN = timedelta(seconds=1)

# The longest time between two publish steps while circuit breakers are open: each closes as `held` what has fallen due under them.
_HOLDS_EVERY = timedelta(seconds=2)


@dataclass
class HandOver:
    """Hands deliveries over to the timed lane `look_ahead` before they are due; if that is zero, the bulk lane sends everything.

    transactions: whether the brokers have them.
    """

    leadership: Leadership
    clock: LoopClock
    look_ahead: timedelta
    transactions: InitVar[bool]
    _seen: Seen | None = None
    _backlog: int | None = None
    """While the bulk lane sends a backlog: the last batch that is part of it."""
    _left_out: frozenset[str] = frozenset()
    lane: TimedLane = field(init=False)

    def __post_init__(self, transactions: bool) -> None:
        unrecorded = _UNRECORDED if transactions else _UNRECORDED_AND_SENT_AGAIN
        self._slot = OpenSlot(self.leadership, self.clock, TIMED_LANE)
        self.lane = TimedLane(self._slot.publish, self._record, self._now_ms, MOST_ROWS, MOST_BYTES, unrecorded)

    # ---------- handing over

    def look(self, report: StepReport, now: datetime, open_breakers: Collection[str]) -> bool:
        """Hands over what is due soon. Returns whether nothing that is due is left to the bulk lane."""
        if not self.look_ahead:
            return False
        state = report.state
        left_out = frozenset([*state.window.paused, *(f"breaker {key}" for key in open_breakers), *self._in_order()])
        if left_out != self._left_out or any(some.until <= now for some in state.window.unknown):
            self._seen, self._left_out = None, left_out
        for upto in (now + self.look_ahead, now) if self._backlog is None else (now,):
            if self._hand_over_up_to(report, now, upto, open_breakers):
                self._backlog = None
                return True
        # the bulk lane sends the backlog; what is decided or falls due meanwhile is handed over, so that the backlog doesn't delay it
        if self._backlog is None:
            # what was decided since the last look is not part of it: it is overdue only because it was decided late
            self._backlog = state.watermark if self._seen is None else self._seen.batch
        self.forget()
        for ahead in (self.look_ahead, self.look_ahead / 8):
            what = self._due(state, now, now + ahead, open_breakers)
            if self._hand_over(replace(what, backlog=self._backlog)) is not None:
                return False
        # there is no room for what was decided since: it joins the backlog
        self._backlog = state.watermark
        return False

    def _in_order(self) -> tuple[str, ...]:
        # named as no topic can be: when the rules change, what an earlier look has left to the bulk lane is looked for again
        return ("retries in order",) if self.leadership.rules.keeps_sequences else ()

    def _due(self, state: LoopState, now: datetime, upto: datetime, open_breakers: Collection[str]) -> Due:
        # the bulk lane sends what stays in order
        followers = self.leadership.rules.keeps_sequences
        due = state.due(upto, now, in_order=False, followers=followers)
        return replace(due, without_breakers=tuple(open_breakers), seen=self._seen)

    def _hand_over(self, what: Due) -> Waiting | None:
        """Hands over what is due. Returns what the wheel holds there; None if the lane has no room for all of it."""
        bulk_lane = self.leadership.bulk_lane
        has = self.lane.ids()
        waiting = bulk_lane.waiting(what)
        # without `seen`, `waiting` also counts what the lane already has, so the limit is all that the lane may hold, not the room left
        rows, size = self.lane.room() if what.seen else (MOST_ROWS, MOST_BYTES)
        if waiting.rows > rows or waiting.size > size or (waiting.overdue > MOST_OVERDUE and what.backlog is None):
            return None
        if waiting.rows:
            ready = bulk_lane.due(what, waiting).withColumn(IS_PACED, F.expr(AT_A_RATE))
            found: pa.Table = ready.select(*HANDED.names).toArrow()
            # by the ids from before the query: what was recorded since is still open in the query's result, and would be sent twice
            new = without(found, has)
            rows, size = self.lane.room()
            if new.num_rows > rows or new.nbytes > size:
                return None
            self.lane.hand_over(new)
        return waiting

    def _hand_over_up_to(self, report: StepReport, now: datetime, upto: datetime, open_breakers: Collection[str]) -> bool:
        """Hands over all that is due up to a moment, if the lane has room for it."""
        state = report.state
        waiting = self._hand_over(self._due(state, now, upto, open_breakers))
        if waiting is None:
            return False
        window = state.window
        if state.undecided_after is None:
            # only then: if inputs are undecided, this look has left out what they name, and no later look would see it
            self._seen = Seen(state.watermark, upto)
            window = window.without_unknown_before(now).moved(self.open_since(now))
        next_look = now + HORIZON if waiting.next_due is None else max(now + _AGAIN, waiting.next_due - self.look_ahead / 2)
        if upto == now:
            next_look = now + _AGAIN
        elif open_breakers:
            next_look = min(next_look, now + _HOLDS_EVERY)
        report.change(window=replace(window, next_due=min(next_look, now + HORIZON)))
        return True

    def open_since(self, upto: datetime) -> datetime:
        """How far a floor may move after everything up to a moment was read or handed over: not over what the lane has."""
        oldest = self.lane.oldest()
        return upto if oldest is None else min(upto, oldest)

    def in_lane(self) -> frozenset[str]:
        """The ids of what the lane has, which the bulk lane leaves alone. To be asked before a query of `ready`, not after it."""
        return frozenset(self.lane.ids())

    def forget(self) -> None:
        """Has the next look read everything again."""
        self._seen = None

    # ---------- taking back

    def withdraw(self, **which: Collection[str]) -> None:
        """As TimedLane.withdraw; what was taken back is looked for again."""
        if self.look_ahead and self.lane.withdraw(**which):
            self.forget()

    def withdraw_named(self, state: LoopState) -> None:
        """Takes back the deliveries that undecided inputs name, so that none is sent after the decision about it. Raises AppendError."""
        if not self.look_ahead or not state.window.undecided:
            return
        has = self.lane.ids()
        if not has:
            return
        stored = self.leadership.stored
        named = stored.spark.sql(f"select delivery_id from {stored.schema}.named_deliveries where batch > {state.watermark:d}")
        in_lane = F.broadcast(ids_frame(stored.spark, has))
        self.withdraw(ids=[row["delivery_id"] for row in named.join(in_lane, "delivery_id", "left_semi").collect()])

    def withdraw_all(self) -> None:
        """Takes back all that waits. What is being sent is left to its end."""
        self.lane.withdraw_all()
        self.forget()

    def end(self) -> None:
        """Ends the lane, and its producer. Raises AppendError if results can't be recorded."""
        try:
            self.lane.end()
        finally:
            self._slot.end()

    # ---------- called by the lane, in its thread that records

    def _record(self, results: pa.Table, tried: list[int]) -> None:
        ledgers, spark = self.leadership.stored.ledgers, self.leadership.stored.spark
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "lane")
        try:
            ledgers.append_once("publish_results", results, self.clock.now(), tried)
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _now_ms(self) -> int:
        return (self.clock.now() - EPOCH) // timedelta(milliseconds=1)
