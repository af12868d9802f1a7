"""What the demo leaves: dead letters with an owner, a runbook and a trace, and nothing processed that doesn't count as recovered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from examples.produce_orders import traceparent
from orchestration.demo import demo
from orchestration.rules.routing import route_for
from orchestration.rules.seeds import read_seeds

SEEDS = Path(__file__).parents[2] / "dbt_project" / "seeds"


@pytest.mark.parametrize("kind", ["fatal", "retriable", "blocking", None])
def test_the_shipped_routes_say_whom_to_ask_about_the_demos_orders(kind: str | None) -> None:
    seeds = read_seeds(SEEDS)
    own = route_for(seeds, "orders", "billing", kind)
    others = route_for(seeds, "anything", "billing", kind)
    assert own is not None
    assert others is not None
    assert own["owner"]
    assert own["runbook"]
    # what decides is the same as for any other topic
    assert all(own[name] == others[name] for name in ("retry_policy", "publish_policy", "retry_topic", "dead_letter_topic"))
    assert not others["owner"]


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
