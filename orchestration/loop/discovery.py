"""Which partitions the sources have, where a source begins, and which partitions give no answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestration.kafka.cluster import Cluster, ClusterError, Partition, Topic
from orchestration.logs import event
from orchestration.loop.positions import SourceOffsets, ids_in_force
from orchestration.rules.seeds import Row
from orchestration.rules.topic_patterns import topic_matches

log = logging.getLogger(__name__)

_DISCOVER_SECONDS = 5.0

# How long a partition that gave no answer is not asked, in seconds: asking it would cost every tick a timeout.
_UNANSWERED_SECONDS = 30.0

COMMANDS = "@commands"
"""The name of the commands topic among the sources. The check of the seeds refuses a source of this name."""


@dataclass
class Discovery:
    """Finds the sources' topics and partitions. begun: see Intake.begun."""

    cluster: Cluster
    sources: tuple[Row, ...]
    partitions: dict[str, list[Partition]] = field(default_factory=dict)
    begun: int = 0
    _unanswered: dict[Partition, float] = field(default_factory=dict)
    _discovered: float = -1e9
    _missing: set[str] = field(default_factory=set)
    _shared: set[str] = field(default_factory=set)

    def use(self, sources: tuple[Row, ...]) -> None:
        """Looks for these sources from now on."""
        self.sources = sources
        self.look_again()

    def look_again(self) -> None:
        """Asks for the topics with the next look, however recent the last one is."""
        self._discovered = -1e9

    def look(self, now: float, offsets: SourceOffsets) -> SourceOffsets:
        """Asks for the topics, if it is time. Returns the offsets, with those of partitions that are new. now: monotonic, in seconds."""
        self._unanswered = {partition: until for partition, until in self._unanswered.items() if until > now}
        if now - self._discovered >= _DISCOVER_SECONDS:
            offsets = self._discover(now, offsets)
            self._discovered = now
        return offsets

    def asked(self, offsets: SourceOffsets) -> list[Partition]:
        """The partitions to ask for their ends: those that have a next offset and are not left alone."""
        found = (partition for found in self.partitions.values() for partition in found)
        return [partition for partition in found if offsets.has(partition) and partition not in self._unanswered]

    def leave_alone(self, partitions: Iterable[Partition], now: float) -> None:
        """Leaves partitions that gave no answer alone for a while."""
        self._unanswered.update(dict.fromkeys(partitions, now + _UNANSWERED_SECONDS))

    @property
    def unanswered(self) -> list[str]:
        """Partitions that lately gave no answer, as `topic/number`: what lies there is not known."""
        return sorted(f"{partition.topic}/{partition.number}" for partition in self._unanswered)

    @property
    def silent(self) -> set[str]:
        """The sources with partitions that lately gave no answer."""
        return {source for source, found in self.partitions.items() if not self._unanswered.keys().isdisjoint(found)}

    def _discover(self, now: float, offsets: SourceOffsets) -> SourceOffsets:
        names = self.cluster.topic_names()
        wanted: dict[str, list[str]] = {row["source"]: [] for row in self.sources}
        for name in names:
            readers = [row["source"] for row in self.sources if topic_matches(name, row["topic"])]
            if len(readers) > 1 and name not in self._shared:
                self._shared.add(name)
                event(log, logging.WARNING, "topic_matched_twice", topic=name, sources=readers)
            if readers:
                wanted[readers[0]].append(name)
        self.partitions = {source: found for source, found in self.partitions.items() if source in wanted}
        topics = self.cluster.describe(name for found in wanted.values() for name in found)
        cut = ids_in_force(offsets)
        for row in self.sources:
            source = row["source"]
            found = [topics[name] for name in wanted[source] if name in topics]
            self._report_missing(row, found)
            self.partitions[source] = [
                Partition(topic.name, cut.get(f"{topic.id}/{number}", topic.id), number)
                for topic in found
                for number in range(topic.partitions)
            ]
            offsets = self._start(row, self.partitions[source], now, offsets)
        return offsets

    def _report_missing(self, row: Row, found: list[Topic]) -> None:
        if row["source"] == COMMANDS:
            # the commands topic is optional; `redrive check` reports it if it is missing
            return
        if not found and row["source"] not in self._missing:
            self._missing.add(row["source"])
            event(log, logging.WARNING, "source_topic_not_found", source=row["source"], pattern=row["topic"])
        elif found and row["source"] in self._missing:
            self._missing.discard(row["source"])
            event(log, logging.WARNING, "source_topic_found", source=row["source"], topics=[topic.name for topic in found])

    def _start(self, row: Row, partitions: list[Partition], now: float, offsets: SourceOffsets) -> SourceOffsets:
        """Sets missing next offsets: by the source's `start` when the source begins; to 0 for partitions found later.

        A source begins with all its partitions at once, and waits for one that gives no answer: later, that one would be read from 0.
        """
        source = row["source"]
        new = [partition for partition in partitions if not offsets.has(partition)]
        if source in offsets.started:
            return offsets.moved(dict.fromkeys(new, 0))
        if self._unanswered.keys() & set(new):
            return offsets
        try:
            where = self.cluster.ends(new) if row["start"] == "latest" else self.cluster.starts(new)
        except ClusterError as error:
            event(log, logging.DEBUG, "source_start_deferred", source=source, reason=error)
            where = {}
        if len(where) < len(new):
            self.leave_alone([partition for partition in new if partition not in where], now)
            return offsets
        self.begun += row["start"] == "latest"
        # a source begins even without a topic: otherwise, with `latest`, records written before the loop finds the topic would be skipped
        return offsets.moved(where).begun(source)
