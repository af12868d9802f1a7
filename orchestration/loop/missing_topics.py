"""Destinations that are missing: the loop creates them, if `create_topics` allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import functions as F

from orchestration.kafka.topics import TopicMaker
from orchestration.loop.due import Due, Window
from orchestration.loop.health import Reason
from orchestration.loop.published import Stop
from orchestration.loop.sending import BulkLane
from orchestration.loop.window import SendWindow
from orchestration.tables.rows import collected

# How many original topics are read for each missing destination: it gets as many partitions as the largest of them.
_ORIGINALS = 100

Originals = Callable[[Sequence[Window], datetime], Mapping[str, Sequence[str]]]
"""Original topics of the messages that wait, by destination."""


@dataclass
class MissingTopics:
    """Says why destinations took nothing, and creates those that are missing: the next attempt finds them."""

    topic_maker: TopicMaker
    originals: Originals

    def reasons(self, stops: Iterable[Stop], window: SendWindow, now: datetime) -> dict[str, Reason]:
        """Why each destination took nothing, by its name. window: where what waits for them begins."""
        named = {stop.topic: stop for stop in stops if stop.topic is not None}
        objections = self._make([topic for topic, stop in named.items() if stop.is_missing], window, now)
        return {topic: _reason(stop, objections.get(topic)) for topic, stop in named.items()}

    def _make(self, missing: Sequence[str], window: SendWindow, now: datetime) -> dict[str, str | None]:
        """Creates these topics. Returns, for each, why it was not created; None: it was."""
        if not self.topic_maker.settings.create_topics:
            return {}
        objections = {topic: self.topic_maker.objection(topic) for topic in missing}
        wanted = [topic for topic, objection in objections.items() if objection is None]
        if wanted:
            floors = {topic: window.paused[topic].floor if topic in window.paused else window.lowest_floor for topic in wanted}
            originals = self.originals([Window(topic, floor, now) for topic, floor in floors.items()], now)
            objections |= {topic: self.topic_maker.make(topic, originals.get(topic, ())) for topic in wanted}
        return objections


def originals_of(bulk_lane: BulkLane, windows: Sequence[Window], now: datetime) -> dict[str, list[str]]:
    """The original topics of the messages that wait in these windows, by destination. One query for all."""
    what = Due.within(windows, now)
    waiting = bulk_lane.due(what, bulk_lane.waiting(what)).groupBy("topic")
    rows = collected(waiting.agg(F.slice(F.array_sort(F.collect_set("original_topic")), 1, _ORIGINALS).alias("originals")))
    return {row["topic"]: row["originals"] for row in rows}


def _reason(stop: Stop, objection: str | None) -> Reason:
    return Reason(stop.reason if objection is None else f"{stop.reason}; the loop does not create it: {objection}", stop.error)
