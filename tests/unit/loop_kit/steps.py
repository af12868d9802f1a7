"""States and steps of a loop without Spark or Kafka."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from orchestration.loop.due import Due, Waiting
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import Health
from orchestration.loop.missing_topics import MissingTopics
from orchestration.loop.publish import Publish
from orchestration.loop.published import Published
from orchestration.loop.read_back import ReadBack
from orchestration.loop.state import LoopState
from orchestration.loop.window import PausedDestination, SendWindow


class StoppedClock:
    """A clock that stands still."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    ahead = timedelta()

    def now(self) -> datetime:
        return self._now


class OneRowLane:
    """A bulk lane for which one row is due at any time, and which sends it."""

    def __init__(self) -> None:
        self.asked: list[Due] = []

    def waiting(self, *_: object, **__: object) -> Waiting:
        return Waiting(rows=1, size=1, largest=1, next_due=None, batches=(1,))

    def run(self, what: Due, *_: object) -> Published:
        self.asked.append(what)
        return Published(upto=what.upto, complete=True, delivered=1)

    def open_since(self, *_: object) -> datetime | None:
        return None


def state_at(floor: datetime, paused: Mapping[str, PausedDestination] | None = None, **fields: Any) -> LoopState:
    """A state in which nothing is open before a moment, but for paused destinations."""
    row: dict[str, Any] = {
        "tick": 1,
        "kind": "tick",
        "generation": 1,
        "instance": "default",
        "watermark": 0,
        "loop_time": floor,
        "slots": 1,
    }
    return LoopState(**{**row, **fields}, window=SendWindow(floor, paused or {}))


def publish_step(bulk_lane: Any, now: datetime, look_ahead: timedelta = timedelta(), *, has_outboxes: bool = False) -> Publish:
    """A publish step with a bulk lane of the test."""
    nothing = cast(Any, None)
    clock = cast(Any, StoppedClock(now))
    rules = SimpleNamespace(keeps_sequences=False, has_outboxes=has_outboxes)
    charge = cast(Any, SimpleNamespace(in_charge=True, bulk_lane=bulk_lane, rules=rules))
    topic_maker = cast(Any, SimpleNamespace(settings=SimpleNamespace(create_topics=False)))
    health = Health(lambda: now)
    hand_over = HandOver(charge, clock, look_ahead, transactions=True)
    missing_topics = MissingTopics(topic_maker, nothing)
    charge.settings = SimpleNamespace(transactions=True)
    read_back = ReadBack(charge, hand_over, clock)
    return Publish(charge, nothing, nothing, missing_topics, health, clock, threading.Lock(), threading.Event(), hand_over, read_back)
