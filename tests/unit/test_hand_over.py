"""What the loop looks for when it hands deliveries over to the timed lane: with and without a backlog."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.loop.due import Due, Waiting, ahead_in
from orchestration.loop.hand_over import HandOver
from orchestration.loop.steps import StepReport
from tests.unit.loop_kit.steps import StoppedClock, state_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AHEAD = timedelta(seconds=40)
FITS = Waiting(0, 0, 0, None, ())


@dataclass
class Looks(HandOver):
    """Notes what is looked for, as how far ahead and after which backlog, and after which batch; answers whether it fits into the lane."""

    fits: list[bool] = field(default_factory=list)
    asked: list[tuple[float, int | None]] = field(default_factory=list)
    after: list[int | None] = field(default_factory=list)

    def _hand_over(self, what: Due) -> Waiting | None:
        self.after.append(None if what.seen is None else what.seen.batch)
        self.asked.append(((what.upto - NOW).total_seconds(), what.backlog))
        return FITS if self.fits.pop(0) else None


@pytest.fixture
def looks() -> Looks:
    nothing = cast(Any, SimpleNamespace(rules=SimpleNamespace(keeps_sequences=False)))
    return Looks(nothing, cast(Any, StoppedClock(NOW)), AHEAD, True)


def look(looks: Looks, watermark: int, *fits: bool) -> tuple[bool, list[tuple[float, int | None]]]:
    """One look; returns whether nothing was left to the bulk lane, and what was looked for."""
    looks.fits, looks.asked = list(fits), []
    handed = looks.look(StepReport(state_at(NOW - timedelta(hours=1), watermark=watermark)), NOW, ())
    assert looks.fits == []
    return handed, looks.asked


def test_what_fits_is_handed_over(looks: Looks) -> None:
    assert look(looks, 5, True) == (True, [(40, None)])
    assert look(looks, 5, False, True) == (True, [(40, None), (0, None)])


def test_a_backlog_is_what_was_decided_when_it_was_found(looks: Looks) -> None:
    assert look(looks, 5, False, False, True) == (False, [(40, None), (0, None), (40, 5)])
    # what is decided later is handed over, though it may be overdue by then
    assert look(looks, 9, False, True) == (False, [(0, None), (40, 5)])
    # where there is only room for what is due soon
    assert look(looks, 12, False, False, True) == (False, [(0, None), (40, 5), (5, 5)])
    # what has no room joins the backlog
    assert look(looks, 15, False, False, False) == (False, [(0, None), (40, 5), (5, 5)])
    assert look(looks, 17, False, True) == (False, [(0, None), (40, 15)])
    # the backlog is sent
    assert look(looks, 20, True) == (True, [(0, None)])
    assert look(looks, 20, True) == (True, [(40, None)])
    # what was decided since the look before is not part of the next one
    assert look(looks, 24, False, False, True) == (False, [(40, None), (0, None), (40, 20)])


def test_what_stayed_in_order_is_looked_for_again_when_the_rules_ask_for_none(looks: Looks) -> None:
    rules = looks.leadership.rules
    rules.keeps_sequences = True  # type: ignore[misc]
    look(looks, 5, True)
    look(looks, 5, True)
    rules.keeps_sequences = False  # type: ignore[misc]
    look(looks, 5, True)
    assert looks.after == [None, 5, None]


def test_the_condition_of_a_backlog_leaves_out_what_was_due_and_decided_by_then() -> None:
    what = Due(NOW, NOW, NOW)
    assert ahead_in(what) == "true"
    assert "batch > 5" in ahead_in(Due(NOW, NOW, NOW, backlog=5))
