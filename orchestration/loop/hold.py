"""Closes what is due under open circuit breakers as `held`, except their probes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.due import Due
from orchestration.loop.hand_over import HandOver
from orchestration.loop.sending import BulkLane
from orchestration.loop.steps import StepReport


def hold(
    report: StepReport, now: datetime, breakers: CircuitBreakers, hand_over: HandOver, bulk_lane: BulkLane, unread: Collection[str]
) -> None:
    """Holds what is due; what the breakers let out is ordered, and waits for its decision.

    unread: destinations of which it isn't known what was sent there.
    """
    with breakers.of(report):
        open_keys = breakers.open
        if not open_keys:
            return
        hand_over.withdraw(breakers=open_keys)
        what = Due(
            report.state.window.lowest_floor,
            now,
            now,
            undecided_after=report.state.undecided_after,
            in_lane=hand_over.in_lane(),
        )
        held, asked = breakers.hold(bulk_lane, what, bulk_lane.waiting(what, breakers=open_keys), unread)
    report.count("held", held)
    if asked:
        report.change(window=report.state.window.awaiting(asked, now))
        report.has_more = True
