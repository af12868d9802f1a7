"""How much of a tick questions may take, by a clock that the test sets."""

from __future__ import annotations

import math

import pytest

from orchestration.answers import allowance as module
from orchestration.answers.allowance import Allowance


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_only_what_runs_beside_a_tick_counts_and_each_tick_begins_anew(clock: Clock) -> None:
    allowance = Allowance(2)
    assert allowance.left() == math.inf
    with allowance.question():
        clock.now += 50
        assert allowance.left() == math.inf
        with allowance.tick():
            clock.now += 1.5
            assert allowance.left() == 0.5
            clock.now += 1
            assert allowance.left() == -0.5
        assert allowance.left() == math.inf
    with allowance.tick():
        assert allowance.left() == 2


def test_questions_of_one_tick_share_its_allowance(clock: Clock) -> None:
    allowance = Allowance(2)
    with allowance.tick():
        for left in (1, 0):
            with allowance.question():
                clock.now += 1
            clock.now += 10
            assert allowance.left() == left
        assert not allowance.waited_for(clock.now + 5)
    assert allowance.waited_for(clock.now)


def test_a_tick_that_fails_has_ended(clock: Clock) -> None:
    allowance = Allowance(2)
    with pytest.raises(ValueError, match="x"), allowance.tick():
        raise ValueError("x")
    assert allowance.left() == math.inf
