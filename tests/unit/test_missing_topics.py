"""Which missing destinations the loop creates, and how often it asks where their messages come from.

On a broker: test_promise_outages_of_kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from orchestration.kafka.topics import TopicMaker
from orchestration.loop.due import Window
from orchestration.loop.health import Reason
from orchestration.loop.missing_topics import MissingTopics
from orchestration.loop.published import Stop
from orchestration.loop.window import PausedDestination, SendWindow
from orchestration.settings import load_settings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLOOR = NOW - timedelta(hours=1)
WINDOW = SendWindow(FLOOR, {"paused": PausedDestination(Reason("gone"), NOW, floor=FLOOR - timedelta(days=1))})


class Kafka:
    """A cluster in which topics are created at once."""

    def __init__(self, *topics: str) -> None:
        self.topics = dict.fromkeys(topics, 3)

    def describe(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(name=name, partitions=self.topics[name]) for name in names if name in self.topics}

    def max_message_bytes(self, names: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1_000_000)

    def create(self, topics: Sequence[Any]) -> dict[str, None]:
        self.topics |= {topic.topic: topic.num_partitions for topic in topics}
        return {topic.topic: None for topic in topics}


class Asked:
    """Where messages come from, and each time that somebody asked."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.windows: list[Sequence[Window]] = []

    def __call__(self, windows: Sequence[Window], now: datetime) -> dict[str, list[str]]:
        self.windows.append(windows)
        return {window.topic: ["orders"] for window in windows if not self.known or window.topic in self.known}


def missing(asked: Asked, *, made: int = 0, create: bool = True) -> MissingTopics:
    maker = TopicMaker(cast(Any, Kafka("orders")), load_settings(create_topics=create), made)
    return MissingTopics(maker, asked)


def stops(*topics: str, is_missing: bool = True) -> list[Stop]:
    return [Stop(topic, "no such topic", "UNKNOWN_TOPIC_OR_PART", is_missing=is_missing) for topic in topics]


def test_sixty_missing_topics_are_made_with_one_question_each_with_a_window_of_its_own() -> None:
    asked = Asked()
    topics = [*(f"pod-{number}" for number in range(59)), "paused"]
    one = missing(asked)
    assert one.reasons(stops(*topics), WINDOW, NOW) == dict.fromkeys(topics, Reason("no such topic", "UNKNOWN_TOPIC_OR_PART"))
    assert one.topic_maker.made == 60
    (windows,) = asked.windows
    assert {window.topic: window.floor for window in windows if window.topic == "paused"} == {"paused": FLOOR - timedelta(days=1)}
    assert {window.upto for window in windows} == {NOW}


def test_what_is_never_made_is_not_asked_about() -> None:
    for one, topic, objection in (
        (missing(asked := Asked()), "__internal", "it is an internal topic"),
        (
            missing(asked, made=100),
            "pod-1",
            "this loop has created 100 topics since its start, the most that it may; `redrive check --create` creates more",
        ),
    ):
        assert one.reasons(stops(topic), WINDOW, NOW)[topic].text == f"no such topic; the loop does not create it: {objection}"
    assert missing(asked, create=False).reasons(stops("pod-1"), WINDOW, NOW)["pod-1"].text == "no such topic"
    assert missing(asked).reasons(stops("denied", is_missing=False), WINDOW, NOW)["denied"].text == "no such topic"
    assert asked.windows == []


def test_one_whose_originals_are_gone_is_not_made_and_the_others_are() -> None:
    one = missing(Asked("known"))
    reasons = one.reasons(stops("unknown", "known"), WINDOW, NOW)
    assert "the loop does not create it: none of the topics" in reasons["unknown"].text
    assert reasons["known"].text == "no such topic"
    assert one.topic_maker.made == 1
