"""Decisions are announced in steps that are bounded, whatever has piled up. On a real topic: tests/loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from orchestration.loop import decision_feed
from orchestration.loop.decision_feed import DecisionFeedWriter
from tests.dbt.harness import Home, report


@dataclass
class Topic:
    """An outlet that keeps what it is told, step by step."""

    steps: list[list[str]] = field(default_factory=list)

    def write(self, records: Iterable[tuple[str, str]]) -> int:
        self.steps.append([key for key, _ in records])
        return len(self.steps[-1])


def test_a_backlog_is_written_in_steps_of_whole_batches(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_feed, "_DECISIONS_AT_ONCE", 4)
    before = home.batch
    offset = 0
    expected = []
    for size in (2, 2, 1, 6, 3):
        home.append_reports(*(report("announced-things", offset + number) for number in range(size)))
        expected.append([f"billing:announced-things/0/{offset + number}" for number in range(size)])
        offset += size
    home.decide()
    topic = Topic()
    writer = DecisionFeedWriter(home.spark, home.schema, cast(Any, topic))
    after, steps = before, 0
    while after < home.batch:
        written = writer.write(after, home.batch)
        assert written.upto > after
        after, steps = written.upto, steps + 1
        assert steps < 10
    steps_wanted = (expected[0] + expected[1], expected[2], expected[3], expected[4])
    assert [sorted(step) for step in topic.steps] == [sorted(wanted) for wanted in steps_wanted]
