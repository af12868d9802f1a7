"""What ends a loop, and what doesn't. All else about it: tests/loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from orchestration.clock import LoopClock
from orchestration.ledgers import AppendError
from orchestration.loop import Loop
from orchestration.settings import load_settings


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
