"""How far consumer groups have processed what was sent to them, by the offsets that they commit: this shows that a retry succeeded.

A group that has committed an offset has processed the records before it. If no report about them came within `settle_seconds`, none of them
failed: the partition is settled up to that offset. Consumers that keep the order of sequences report a failure before they commit
(docs/sequences.md): once the reports are taken in that existed when the offset was seen, none is missing, and nothing is waited for.

Settled offsets are written into `ticks`, where the view `settled_offsets` reads them; SQL derives from them which messages have recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.loop.completeness import Completeness

# How many times groups are asked within `settle_seconds`; and the shortest time between two looks, in seconds.
_LOOKS = 6
_MOST_OFTEN = 1.0

# How long a group that can't be asked is left alone, in seconds: each try may cost a timeout.
_LEFT_ALONE = 30.0

# A group that has committed nothing at any of its places is asked less and less often: after a tenth of the time for which it has committed
# nothing, but at the latest after _QUIET_LONGEST. There may be hundreds of such groups, if each process makes up a group name, and each
# group takes a request of its own.
_QUIET_PART = 10
_QUIET_LONGEST = timedelta(minutes=10)

# If a group has committed nothing at a place for this long after the last send, the place is not watched any more.
_FORGOTTEN_AFTER = timedelta(days=1)


class Place(NamedTuple):
    """A partition, and the group that reads it."""

    consumer_group: str
    topic: str
    partition: int


class Awaited(NamedTuple):
    """A place that something was sent to and that isn't settled: the offset after the last send, and how far it is settled."""

    place: Place
    sent: int
    settled: int


@dataclass
class _Watched:
    """What is known of one place: the offset after our last send, and how far it is settled.

    origins: the original topics of what was sent there, None where that is not known. committed: what the group has committed, None where
    it has not, or not been asked. asked: when the group last answered. seen: a committed offset, and when it was first seen; it counts as
    settled `settle_seconds` later. quiet_since: when the group first answered, after the last send, that it has committed
    nothing here.
    """

    sent: int
    settled: int = 0
    origins: frozenset[str] | None = None
    committed: int | None = None
    asked: datetime | None = None
    seen: tuple[int, datetime] | None = None
    quiet_since: datetime | None = None

    def is_quiet(self, now: datetime) -> bool:
        """Whether the group need not be asked now for this place's sake, as it has committed nothing here for a while."""
        if self.quiet_since is None or self.asked is None:
            return False
        return now < self.asked + min((self.asked - self.quiet_since) / _QUIET_PART, _QUIET_LONGEST)

    def is_forgotten(self) -> bool:
        """Whether the group has committed nothing here for so long that it is taken for one that commits no offsets."""
        return self.quiet_since is not None and self.asked is not None and self.asked - self.quiet_since >= _FORGOTTEN_AFTER


class Unanswered(NamedTuple):
    """A group that can't be asked: why, until when it is left alone, and Kafka's name of the error."""

    why: str
    until: datetime
    error: str | None = None


@dataclass
class Consumers:
    """Watches the places that something was sent to, until they are settled.

    looked: the last batch whose results were read. reports_first: whether a group reports a failure before it commits the offset, if the
    original topics of what it reads are these. keeps_sequences: whether any group does. unanswered: the groups that can't be asked, whose
    progress is unknown.
    """

    spark: SparkSession
    schema: str
    cluster: Cluster
    settle: timedelta
    looked: int
    reports_first: Callable[[str, Collection[str]], bool] = lambda group, topics: False
    keeps_sequences: Callable[[], bool] = lambda: False
    unanswered: dict[str, Unanswered] = field(default_factory=dict)
    _awaited: dict[Place, _Watched] = field(default_factory=dict)
    _last_look: datetime | None = None
    _next_look: datetime | None = None

    def remember(self, awaited: Iterable[Awaited]) -> None:
        """Watches the places that the state says are awaited."""
        for place, sent, settled in awaited:
            self._awaited[place] = _Watched(sent, settled)

    def look(self, now: datetime, batch: int, *, complete: Completeness) -> dict[Place, int]:
        """Asks the groups, if it is time. Returns the places whose settled offset has changed, and that offset.

        It is lower than before if the group was set back, or the topic was created again.

        now: when the tick began, before its intake; complete: the topics of which all reports that existed then are taken in and decided.
        batch: the last one. A group that can't be asked stops no other: it goes into `unanswered`, and the groups after it are asked with
        the next look.
        """
        if self._next_look is not None and now < self._next_look:
            return {}
        self._last_look = now
        self._add_sends(batch)
        waits = {place: self._wait(place, awaited) for place, awaited in self._awaited.items()}
        self._next_look = now + max(min(waits.values(), default=self.settle) / _LOOKS, timedelta(seconds=_MOST_OFTEN))
        settled: dict[Place, int] = {}
        by_group: dict[str, list[Place]] = {}
        for place in self._awaited:
            by_group.setdefault(place.consumer_group, []).append(place)
        groups = by_group.keys()
        self.unanswered = {group: silent for group, silent in self.unanswered.items() if group in groups}
        self.cluster.keep_only(groups)
        # groups that gave no answer come last, and only one of them in a look: each may cost a timeout, for which the whole loop waits
        for group in sorted(groups, key=lambda group: (group in self.unanswered, group)):
            if group in self.unanswered and now < self.unanswered[group].until:
                continue
            places = by_group[group]
            if all(self._awaited[place].is_quiet(now) for place in places):
                continue
            try:
                committed = self.cluster.committed(group, [(place.topic, place.partition) for place in places])
            except ClusterError as error:
                self.unanswered[group] = Unanswered(str(error), now + timedelta(seconds=_LEFT_ALONE), error.name)
                break
            self.unanswered.pop(group, None)
            for place in places:
                self._saw(place, committed.get((place.topic, place.partition)), now)
        if complete.decided and (not complete.is_whole or self.keeps_sequences()):
            self._find_origins()
        for place, awaited in list(self._awaited.items()):
            # seen in an earlier tick: this one has taken in what was reported before the offset was committed
            is_over = awaited.seen is not None and awaited.seen[1] < now and awaited.seen[1] + waits[place] <= now
            if awaited.seen is not None and is_over and complete.of(awaited.origins):
                awaited.settled = settled[place] = awaited.seen[0]
                awaited.seen = None
            # where order matters, what comes next waits for it, however long the group is away
            if awaited.settled >= awaited.sent or (awaited.is_forgotten() and not self._reports_first(place, awaited)):
                del self._awaited[place]
        return settled

    def _wait(self, place: Place, awaited: _Watched) -> timedelta:
        """How long after a committed offset was seen the absence of a report means success."""
        return timedelta() if self._reports_first(place, awaited) else self.settle

    def _reports_first(self, place: Place, awaited: _Watched) -> bool:
        return bool(awaited.origins) and self.reports_first(place.consumer_group, awaited.origins or ())

    def is_silent(self, place: Place, since: datetime) -> bool:
        """Whether the group was asked after `since`, and commits no offsets there: then only the absence of a report can show a success."""
        awaited = self._awaited.get(place)
        if awaited is None:
            return self._last_look is not None and self._last_look >= since
        return awaited.asked is not None and awaited.asked >= since and awaited.committed is None

    def state(self) -> list[Awaited]:
        """What is awaited, as the state keeps it."""
        return [Awaited(place, watched.sent, watched.settled) for place, watched in sorted(self._awaited.items())]

    def _saw(self, place: Place, committed: int | None, now: datetime) -> None:
        awaited = self._awaited[place]
        awaited.committed, awaited.asked = committed, now
        awaited.quiet_since = (awaited.quiet_since or now) if committed is None else None
        if committed is None or (awaited.seen is not None and committed < awaited.seen[0]):
            # if the group was set back, it processes the records from there on once more
            awaited.seen = None
        elif committed != awaited.settled and awaited.seen is None:
            awaited.seen = (committed, now)

    def _find_origins(self) -> None:
        """Finds the original topics of what an earlier loop sent to the places that are watched."""
        unknown = [place for place, awaited in self._awaited.items() if awaited.origins is None]
        if not unknown:
            return
        sent = self.spark.sql(
            f"""
            select consumer_group, topic, partition, collect_set(original_topic) as origins
            from {self.schema}.publish_results
            where batch <= {self.looked:d} and outcome = 'delivered' and kind <> 'dead_letter' and consumer_group is not null
            group by consumer_group, topic, partition
            """
        )
        found = {
            Place(row["consumer_group"], row["topic"], row["partition"]): frozenset(row["origins"])
            for row in sent.where(F.col("topic").isin(*{place.topic for place in unknown})).collect()
        }
        for place in unknown:
            self._awaited[place].origins = found.get(place)

    def _add_sends(self, batch: int) -> None:
        """Begins to watch the places that something was sent to since the last look."""
        if batch <= self.looked:
            return
        sent = self.spark.sql(
            f"""
            select consumer_group, topic, partition, max(offset) + 1 as sent, collect_set(original_topic) as origins
            from {self.schema}.publish_results
            where batch > {self.looked:d} and batch <= {batch:d}
                and outcome = 'delivered' and kind <> 'dead_letter' and consumer_group is not null
                -- null: the brokers had it already, and did not say where
                and offset is not null
            group by consumer_group, topic, partition
            """
        ).collect()
        for row in sent:
            place = Place(row["consumer_group"], row["topic"], row["partition"])
            awaited = self._awaited.setdefault(place, _Watched(row["sent"], origins=frozenset()))
            awaited.origins = None if awaited.origins is None else awaited.origins | set(row["origins"])
            # the offset of the last send, not the highest: in a topic that was created again, offsets begin at 0
            awaited.sent, awaited.quiet_since = int(row["sent"]), None
        self.looked = batch
