"""What the demo leaves: dead letters with a trace, and nothing processed that doesn't count as recovered."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from examples.produce_orders import traceparent
from orchestration.demo import demo, topics


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


PLACE = {"redrive-original-topic": "orders", "redrive-original-partition": "0", "redrive-original-offset": "1"}
REPORT = ("redrive.failures", {**PLACE, "redrive-consumer-group": "billing"}, 500, b"v")
RETRY = ("orders-billing-retry", {"redrive-message-id": "billing:orders/0/1", "redrive-delivery": "a", "redrive-due": "1000"}, 1_000, b"v")
DEAD = ("orders.dlq", {"redrive-message-id": "billing:orders/0/1", "redrive-delivery": "b", "redrive-due": "2000"}, 2_000, b"v")


@pytest.mark.parametrize(
    ("records", "waiting", "found"),
    [
        ([REPORT, REPORT, RETRY, DEAD], [], ([], 0, 0)),
        ([REPORT, REPORT, RETRY], ["billing:orders/0/1"], ([], 0, 0)),
        ([REPORT, REPORT, RETRY], [], (["billing:orders/0/1"], 0, 0)),
        ([REPORT, (*RETRY[:2], 999, b"v")], [], ([], 1, 0)),
        ([REPORT, RETRY, RETRY], [], ([], 0, 1)),
    ],
    ids=["all is answered", "one waits", "one is lost", "one is early", "one came twice"],
)
def test_the_audit_finds_what_is_lost_early_or_there_twice(
    monkeypatch: pytest.MonkeyPatch, records: list[Any], waiting: list[str], found: tuple[list[str], int, int]
) -> None:
    monkeypatch.setattr(topics, "read_since", lambda _, __, names: [record for record in records if record[0] in names])
    rows = SimpleNamespace(collect=lambda: [{"message_id": name} for name in waiting])
    loop: Any = SimpleNamespace(schema="redrive", spark=SimpleNamespace(sql=lambda _: rows))
    findings = topics.audit(loop, {}, {}, [])
    assert (findings.lost, findings.early, findings.twice) == found
