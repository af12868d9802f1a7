"""How the publisher finds out which original topics and partitions don't exist. tests/loop/test_originals.py has a real broker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from publisher import originals
from publisher.contract import GONE
from publisher.errors import Trouble
from tests.unit.publisher_kit.rows import settings_for


def test_topics_that_are_missing_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would else hold up the step by itself, and a step's originals may come from hundreds of topics."""
    waited, asked = list[float](), list[str]()
    monkeypatch.setattr(time, "sleep", waited.append)
    # it is known when it is asked for the second time
    late = "late"

    def list_topics(topic: str, _: float) -> Any:
        asked.append(topic)
        partitions = {0: None} if topic == late and asked.count(topic) > 1 else {}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions, error=None)})

    places = [(topic, 0, 5) for topic in (late, "gone", "gone too")]
    reading = originals._Reading(places, settings_for("nowhere:1"), missing := set[tuple[str, int]]())
    reading.find(cast(Any, SimpleNamespace(list_topics=list_topics)))
    assert waited == [*originals._LOOKS_AGAIN]
    assert {topic: asked.count(topic) for topic in asked} == {late: 2, "gone": 4, "gone too": 4}
    assert missing == {("gone", 0), ("gone too", 0)}
    assert {place[0]: found.error.name for place, found in reading.found.items() if isinstance(found, Trouble)} == {
        "gone": GONE,
        "gone too": GONE,
    }
    assert [place.topic for place in reading.next] == [late]
