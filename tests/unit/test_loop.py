"""What ends a loop, and what doesn't. All else about it: tests/loop."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.consumer_progress import Place
from orchestration.loop.decide import Decide
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import DECIDE, LEDGERS, Health
from orchestration.loop.loop import Loop
from orchestration.loop.recovery import Recovery
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepResult, Tick, reduce
from orchestration.loop.undecided import Undecided
from orchestration.tables.decide_statements import DecideError
from orchestration.tables.ledgers import AppendError, TakenOverError
from tests.unit.loop_kit.steps import StoppedClock, state_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def recovery_whose_tables_fail(error: Exception) -> Recovery:
    """Of a loop that can't read its tables."""

    def read_end() -> None:
        raise error

    stored = SimpleNamespace(ledgers=SimpleNamespace(read_end=read_end))
    return Recovery(cast(Any, SimpleNamespace(stored=stored)))


def health_after(recovery: Recovery, failure: Exception) -> Health:
    """The health after a step that failed."""
    health = Health(lambda: NOW)
    reduce(state_at(NOW), Tick(), recovery.after(state_at(NOW), failure), health)
    return health


def test_tables_that_cannot_be_read_after_a_failed_append_are_waited_for() -> None:
    recovery = recovery_whose_tables_fail(RuntimeError("503 Service Unavailable"))
    health = health_after(recovery, AppendError("503 Service Unavailable"))
    assert health.unsure
    assert not health.may(LEDGERS)
    assert "the ledgers can't be read either: 503 Service Unavailable" in health[LEDGERS].why


@pytest.mark.parametrize("gone", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")])
def test_a_loop_whose_spark_is_gone_ends(gone: Exception) -> None:
    recovery = recovery_whose_tables_fail(gone)
    with pytest.raises(type(gone)):
        recovery.after(state_at(NOW), AppendError("An error occurred while calling o12.overwrite"))


def test_a_ledger_that_may_still_get_an_append_is_sealed_before_anything_else_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def raised(state: LoopState, _: object) -> LoopState:
        done.append("positions are read")
        return state

    stored = SimpleNamespace(
        ledgers=SimpleNamespace(read_end=lambda: 0, in_doubt=["events", "ticks"]),
        last_row=lambda: None,
        raised=raised,
        seal=lambda ledger, _: done.append(f"{ledger} is sealed"),
    )
    undecided = SimpleNamespace(stored=stored, find=lambda _: done.append("inputs are found"))
    recovery = Recovery(cast(Any, undecided))
    health = health_after(recovery, AppendError("connection reset"))
    assert done == ["positions are read", "inputs are found", "events is sealed", "ticks is sealed"]
    assert not health.unsure

    def lands_first(*_: object) -> None:
        raise AppendError("conflict")

    monkeypatch.setattr(stored, "seal", lands_first)
    assert health_after(recovery, AppendError("connection reset")).unsure, "what landed meanwhile has not been read"


def test_a_loop_that_was_superseded_while_its_tables_failed_ends() -> None:
    def taken_over(*_: object) -> None:
        raise TakenOverError(8, "generation 8 has taken over")

    ledgers = SimpleNamespace(read_end=lambda: 0, in_doubt=["events"])
    stored = SimpleNamespace(ledgers=ledgers, last_row=lambda: None, raised=lambda state, _: state, seal=taken_over)
    result = Recovery(cast(Any, SimpleNamespace(stored=stored, find=lambda _: None))).after(state_at(NOW), AppendError("connection reset"))
    assert (result.superseded_by, result.unsure) == (8, True)


@dataclass
class DecideRuns:
    """Tables with two inputs, in batches 4 and 5, of which each decide run commits some: up to which batch, and whether it says so."""

    commits: list[tuple[int, bool]]
    decided: int = 3
    told: list[tuple[int, int]] = field(default_factory=list)
    breakers: list[tuple[int, int]] = field(default_factory=list)

    def run(self, watermark: int, upto: int, rules_hash: str | None, inputs: int) -> None:
        self.told.append((watermark, upto))
        upto, says_so = self.commits.pop(0)
        self.decided = upto
        if not says_so:
            raise DecideError("503 Service Unavailable")

    def open_breakers(self, after: int, upto: int, now: datetime, floor: datetime) -> None:
        self.breakers.append((after, upto))


class Deciding:
    """The step, over these tables, and what the reducer makes of it."""

    def __init__(self, runs: DecideRuns, monkeypatch: pytest.MonkeyPatch) -> None:
        nothing = cast(Any, None)

        def with_undecided(state: LoopState) -> tuple[LoopState, int | None]:
            left, window = 5 - state.watermark, state.window.all_decided()
            if not left:
                return replace(state, window=window), None
            return replace(state, window=window.awaiting(left, NOW)), state.watermark + 1

        stored = SimpleNamespace(
            ledgers=SimpleNamespace(certain=5, superseded_by=lambda: None), last_decided=lambda: runs.decided, with_undecided=with_undecided
        )
        self.breakers = CircuitBreakers(nothing, "redrive", nothing, nothing, 1)
        monkeypatch.setattr(self.breakers, "decided", runs.open_breakers)
        undecided = Undecided(cast(Any, stored), self.breakers)
        self.health = Health(lambda: NOW)
        rules = cast(Any, SimpleNamespace(hash=None))
        clock = cast(Any, StoppedClock(NOW))
        hand_over = HandOver(nothing, clock, timedelta(), transactions=True)
        self.step = Decide(cast(Any, runs), undecided, self.breakers, rules, self.health, clock, threading.Event(), hand_over)
        self.recovery = Recovery(undecided)
        state = state_at(NOW, watermark=3)
        self.state, self.tick = replace(state, window=state.window.awaiting(2, NOW)), Tick()

    def decide(self) -> StepResult:
        result = self.step.decide_up_to(self.state, 5)
        self.state, self.tick = reduce(self.state, self.tick, result, self.health)
        if result.failure is not None:
            self.state, self.tick = reduce(self.state, self.tick, self.recovery.after(self.state, result.failure), self.health)
        return result


@pytest.mark.parametrize(
    ("commits", "told", "breakers", "watermark"),
    [
        pytest.param([(5, True)], [(3, 5)], [(3, 5)], 5, id="all at once"),
        pytest.param([(4, True), (5, True)], [(3, 5), (4, 5)], [(3, 4), (4, 5)], 5, id="one after the other"),
        pytest.param([(5, False)], [(3, 5)], [(3, 5)], 5, id="committed, and no answer"),
        pytest.param([(4, False), (5, True)], [(3, 5), (4, 5)], [(3, 4), (4, 5)], 5, id="some of it committed by another decide run"),
        pytest.param([(4, True), (4, False)], [(3, 5), (4, 5)], [(3, 4)], 4, id="the second decide run fails"),
        pytest.param([(3, False)], [(3, 5)], [], 3, id="nothing is committed"),
    ],
)
def test_what_is_committed_is_decided_whatever_the_run_says(
    monkeypatch: pytest.MonkeyPatch,
    commits: list[tuple[int, bool]],
    told: list[tuple[int, int]],
    breakers: list[tuple[int, int]],
    watermark: int,
) -> None:
    runs = DecideRuns(list(commits))
    deciding = Deciding(runs, monkeypatch)
    deciding.decide()
    assert (runs.told, runs.breakers, deciding.state.watermark) == (told, breakers, watermark)
    assert deciding.tick.counts["decisions"] == watermark - 3
    assert deciding.state.window.undecided == 5 - watermark
    assert (DECIDE in deciding.health) == (watermark < 5)


def test_nothing_is_sent_while_it_is_not_known_what_a_run_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = DecideRuns([(5, True), (5, False)])
    deciding = Deciding(runs, monkeypatch)

    def unreadable(*told: object) -> None:
        raise RuntimeError("503 Service Unavailable")

    monkeypatch.setattr(deciding.breakers, "decided", unreadable)
    deciding.decide()
    assert not deciding.health.may(LEDGERS)
    assert deciding.state.watermark == 3
    # the next decide run is refused, as the batches are decided; what was decided is seen then
    monkeypatch.setattr(deciding.breakers, "decided", runs.open_breakers)
    deciding.decide()
    assert (runs.breakers, deciding.state.watermark, deciding.state.window.undecided) == ([(3, 5)], 5, 0)


def test_a_run_does_not_pass_a_batch_that_may_still_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timed lane appends beside the decide step: the answer to its batch 5 is lost, and the batch is committed later."""
    runs = DecideRuns([(4, True)])
    deciding = Deciding(runs, monkeypatch)
    deciding.step.undecided.stored.ledgers.certain = 4  # type: ignore[misc]
    result = deciding.step.run(deciding.state, NOW)
    assert (runs.told, result.state.watermark) == ([(3, 4)], 4)


def test_the_last_row_says_what_has_settled_and_no_row_says_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.loop.loop.interpreted", nullcontext)
    place, rows = Place("billing", "orders-billing-retry", 0), list[LoopState]()
    loop = object.__new__(Loop)
    loop.__dict__ |= {
        "_has_ended": False,
        "health": Health(lambda: NOW),
        "spark": None,
        "state": state_at(NOW),
        "stored": SimpleNamespace(append=rows.append),
        "steps": SimpleNamespace(publish=SimpleNamespace(has_unrecorded=False), settle=SimpleNamespace(unrecorded={place: 17})),
    }
    loop._append_end()
    assert [(row.kind, row.settled) for row in rows] == [("end", {place: 17})]
