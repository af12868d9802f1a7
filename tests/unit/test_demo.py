"""What the demo leaves: dead letters with a trace, and nothing processed that doesn't count as recovered."""

from __future__ import annotations

import re
from typing import Any

import pytest

from examples.produce_orders import traceparent
from orchestration.demo import demo


def test_orders_carry_a_trace_of_their_own() -> None:
    first, second = traceparent(), traceparent()
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first)
    assert first != second


def test_the_demo_sums_up_when_what_was_processed_has_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    # what is sent last has no consumer any more, and is not waited for
    looks = [{"a", "b", "late"}, {"b", "late"}, {"late"}]
    ticks: list[str] = []

    class Loop:
        class stopping:  # noqa: N801 - as the loop calls it
            clear = staticmethod(lambda: None)

        class settings:  # noqa: N801
            poll_seconds = 0.0

        def tick(self) -> Any:
            ticks.append("tick")
            # a tick that did something is followed by another one at once
            return type("Tick", (), {"did_something": len(ticks) == 1})

    monkeypatch.setattr(demo, "_sent", lambda _: looks.pop(0))
    loop: Any = Loop()
    demo._settle(loop, {"a", "b"})
    assert looks == []
    assert len(ticks) == 4
