"""What consumers are told about sequences, without Spark and Kafka: what has changed, and then up to where reports are decided."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.kafka.cluster import Partition
from orchestration.kafka.json_topics import JsonTopicError
from orchestration.loop.health import Health
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.sequence_feed import DECIDED, SequenceFeed
from orchestration.loop.state import LoopState
from tests.unit.loop_kit.steps import state_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPORTS = Partition("reports", "id-of-reports", 0)


@dataclass
class Topic:
    """A compacted topic: what it says, and each write."""

    says: dict[str, str] = field(default_factory=dict)
    writes: list[list[tuple[str, str | None]]] = field(default_factory=list)
    lost: bool = False
    refuses: bool = False

    def begin(self) -> dict[str, str]:
        self.lost = False
        return dict(self.says)

    def is_lost(self) -> bool:
        return self.lost

    def write(self, records: Iterable[tuple[str, str | None]]) -> int:
        if self.refuses:
            raise JsonTopicError("refused")
        self.writes.append(list(records))
        for key, value in self.writes[-1]:
            self.says.pop(key, None)
            if value is not None:
                self.says[key] = value
        return len(self.writes[-1])


@dataclass
class Tables:
    """The sequences that are held."""

    held: dict[str, str] = field(default_factory=dict)
    in_order: bool = True
    watermark: int = 0
    touched: set[str] | None = None

    def keeps_sequences(self) -> bool:
        return self.in_order

    def look(self, watermark: int, now: datetime) -> None:
        self.watermark = watermark

    def told(self) -> None:
        pass


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def feed(topic: Topic, tables: Tables) -> SequenceFeed:
    discovery = cast(Any, SimpleNamespace(partitions={"reports": [REPORTS]}))
    return SequenceFeed(cast(Any, topic), cast(Any, tables), discovery, Health(lambda: NOW))


def state(watermark: int, offset: int, undecided: int = 0) -> LoopState:
    made = state_at(NOW, watermark=watermark, offsets=SourceOffsets({REPORTS.key: offset}))
    return made if not undecided else replace(made, window=made.window.awaiting(undecided, NOW))


def tick(feed: SequenceFeed, of: LoopState) -> None:
    feed.note(of)
    assert feed.run(of, NOW).failure is None


def test_what_has_changed_is_told_and_then_how_far_reports_are_decided(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.held = {"a": "1", "b": "1"}
    tick(feed, state(1, 10))
    tables.held = {"b": "2", "c": "1"}
    tick(feed, state(2, 20))
    # nothing has changed: nothing is written
    tick(feed, state(2, 20))
    assert tables.watermark == 2
    first, second = topic.writes
    assert first == [("a", "1"), ("b", "1"), (DECIDED, json.dumps({"reports/0": 10}))]
    assert second == [("b", "2"), ("c", "1"), ("a", None), (DECIDED, json.dumps({"reports/0": 20}))]


def test_only_what_something_has_happened_in_is_compared(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.held = {"a": "1", "b": "1", "c": "1"}
    tick(feed, state(1, 10))
    tables.held = {"a": "2", "b": "2"}
    tables.touched = {"a"}
    tick(feed, state(2, 10))
    tables.touched = {"b", "c", "d"}
    tick(feed, state(3, 10))
    assert [sorted(write)[:-1] for write in topic.writes[1:]] == [[("a", "2")], [("b", "2"), ("c", None)]]
    # of a topic that was created again nothing is known
    topic.says, topic.lost = {}, True
    tick(feed, state(4, 10))
    assert sorted(topic.writes[-1])[:-1] == [("a", "2"), ("b", "2")]


def test_reports_that_are_taken_in_and_not_decided_are_not_told_of(feed: SequenceFeed, topic: Topic) -> None:
    tick(feed, state(1, 10))
    tick(feed, state(1, 20, undecided=3))
    assert [dict(write)[DECIDED] for write in topic.writes] == [json.dumps({"reports/0": 10})]


def test_a_start_tells_what_the_topic_does_not_say_yet(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    topic.says = {"a": "1", "gone": "1", DECIDED: json.dumps({"reports/0": 10})}
    tables.held = {"a": "1", "b": "1"}
    tick(feed, state(1, 10))
    assert topic.writes == [[("b", "1"), ("gone", None), (DECIDED, json.dumps({"reports/0": 10}))]]


def test_a_topic_that_was_created_again_is_told_everything(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.held = {"a": "1"}
    tick(feed, state(1, 10))
    topic.says, topic.lost = {}, True
    tick(feed, state(1, 10))
    assert topic.writes[1] == topic.writes[0]


def test_what_was_refused_is_told_with_the_next_try(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.held = {"a": "1"}
    topic.refuses = True
    tick(feed, state(1, 10))
    topic.refuses = False
    tick(feed, state(1, 10))
    assert [key for key, _ in topic.writes[0]] == ["a", DECIDED]


def test_nothing_is_told_where_no_route_asks_for_order(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.in_order = False
    tick(feed, state(1, 10))
    assert topic.writes == []


def test_what_the_topic_says_is_kept_right_until_nothing_is_held_any_more(feed: SequenceFeed, topic: Topic, tables: Tables) -> None:
    tables.held = {"a": "1"}
    tick(feed, state(1, 10))
    # the last route that asks for order is gone
    tables.in_order, tables.held = False, {}
    tick(feed, state(2, 20))
    tick(feed, state(3, 30))
    assert topic.writes[1:] == [[("a", None), (DECIDED, json.dumps({"reports/0": 20}))]]
