"""What ends a loop, and what doesn't. All else about it: tests/loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from orchestration.clock import LoopClock
from orchestration.loop.loop import Loop, Tick
from orchestration.settings import load_settings
from orchestration.tables.dbt import DbtError
from orchestration.tables.ledgers import AppendError


def loop_whose_tables_fail(error: Exception) -> Loop:
    """A loop that can't read its tables."""

    def read_end() -> None:
        raise error

    loop = Loop(load_settings())
    loop.clock = LoopClock(None)
    loop.ledgers = cast(Any, SimpleNamespace(read_end=read_end))
    return loop


def test_tables_that_cannot_be_read_after_a_failed_append_are_waited_for() -> None:
    loop = loop_whose_tables_fail(RuntimeError("503 Service Unavailable"))
    loop._after_failed_append(AppendError("503 Service Unavailable"))
    assert not loop._may("ledgers")
    assert "the ledgers can't be read either: 503 Service Unavailable" in loop._trouble["ledgers"].why


@pytest.mark.parametrize("gone", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")])
def test_a_loop_whose_spark_is_gone_ends(gone: Exception) -> None:
    loop = loop_whose_tables_fail(gone)
    with pytest.raises(type(gone)):
        loop._after_failed_append(AppendError("An error occurred while calling o12.overwrite"))


def test_a_ledger_that_may_still_get_an_append_is_sealed_before_anything_else_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(load_settings())
    loop.clock = LoopClock(None)
    loop.ledgers = cast(Any, SimpleNamespace(read_end=lambda: 0, in_doubt=["events", "ticks"]))
    loop.intake = cast(Any, SimpleNamespace(positions={}))
    done: list[str] = []
    monkeypatch.setattr(Loop, "_last_tick", lambda _: None)
    monkeypatch.setattr(Loop, "_positions", lambda *_: done.append("positions are read") or {})
    monkeypatch.setattr(Loop, "_find_undecided", lambda _: done.append("inputs are found"))
    monkeypatch.setattr(Loop, "_seal", lambda _, ledger: done.append(f"{ledger} is sealed"))
    loop._after_failed_append(AppendError("connection reset"))
    assert done == ["positions are read", "inputs are found", "events is sealed", "ticks is sealed"]
    assert not loop._unsure

    def lands_first(*_: object) -> None:
        raise AppendError("conflict")

    monkeypatch.setattr(Loop, "_seal", lands_first)
    loop._after_failed_append(AppendError("connection reset"))
    assert loop._unsure, "what landed meanwhile has not been read"


@dataclass
class Folds:
    """Tables with two inputs, in batches 4 and 5, of which each fold commits some: up to which batch, and whether it says so."""

    commits: list[tuple[int, bool]]
    decided: int = 3
    told: list[tuple[object, object]] = field(default_factory=list)
    gates: list[tuple[int, int]] = field(default_factory=list)

    def run(self, command: str, *, select: Sequence[str], variables: dict[str, object]) -> None:
        self.told.append((variables["watermark"], variables["upto"]))
        upto, says_so = self.commits.pop(0)
        self.decided = upto
        if not says_so:
            raise DbtError("503 Service Unavailable")

    def close_gates(self, after: int, upto: int, now: datetime, floor: datetime) -> None:
        self.gates.append((after, upto))


def loop_over(folds: Folds, monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(load_settings())
    loop.clock = LoopClock(None)
    loop.floor = loop.clock.now()
    loop.watermark, loop._rules_hash = 3, None
    loop.ledgers = cast(Any, SimpleNamespace(batch=5, superseded_by=lambda: None))
    loop.dbt = cast(Any, folds)
    loop.gates = cast(Any, SimpleNamespace(decided=folds.close_gates))

    def find_undecided() -> int | None:
        loop._undecided, loop._undecided_since = 5 - loop.watermark, None
        return loop.watermark + 1 if loop._undecided else None

    monkeypatch.setattr(loop, "_max_batch", lambda table: folds.decided)
    monkeypatch.setattr(loop, "_find_undecided", find_undecided)
    loop._await_decision(2, loop.clock.now())
    return loop


@pytest.mark.parametrize(
    ("commits", "told", "gates", "watermark"),
    [
        pytest.param([(5, True)], [(3, 5)], [(3, 5)], 5, id="all at once"),
        pytest.param([(4, True), (5, True)], [(3, 5), (4, 5)], [(3, 4), (4, 5)], 5, id="one after the other"),
        pytest.param([(5, False)], [(3, 5)], [(3, 5)], 5, id="committed, and no answer"),
        pytest.param([(4, False), (5, True)], [(3, 5), (4, 5)], [(3, 4), (4, 5)], 5, id="some of it committed by another fold"),
        pytest.param([(4, True), (4, False)], [(3, 5), (4, 5)], [(3, 4)], 4, id="the second fold fails"),
        pytest.param([(3, False)], [(3, 5)], [], 3, id="nothing is committed"),
    ],
)
def test_what_is_committed_is_decided_whatever_the_fold_says(
    monkeypatch: pytest.MonkeyPatch,
    commits: list[tuple[int, bool]],
    told: list[tuple[int, int]],
    gates: list[tuple[int, int]],
    watermark: int,
) -> None:
    folds, tick = Folds(list(commits)), Tick()
    loop = loop_over(folds, monkeypatch)
    loop._decide(tick, 5)
    assert (folds.told, folds.gates, loop.watermark) == (told, gates, watermark)
    assert tick.counts["decisions"] == watermark - 3
    assert loop._undecided == 5 - watermark
    assert ("fold" in loop._trouble) == (watermark < 5)


def test_nothing_is_sent_while_it_is_not_known_what_a_fold_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = Folds([(5, True), (5, False)])
    loop = loop_over(folds, monkeypatch)

    def unreadable(*told: object) -> None:
        raise RuntimeError("503 Service Unavailable")

    loop.gates = cast(Any, SimpleNamespace(decided=unreadable))
    loop._decide(Tick(), 5)
    assert not loop._may("ledgers")
    assert loop.watermark == 3
    # the next fold is refused, as the batches are decided; what was decided is seen then
    loop.gates = cast(Any, SimpleNamespace(decided=folds.close_gates))
    loop._decide(Tick(), 5)
    assert (folds.gates, loop.watermark, loop._undecided) == ([(3, 5)], 5, 0)
