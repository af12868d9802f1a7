"""Finds out what was sent although it has no result, by reading the topics, and records it: so nothing is sent a second time.

What has no result may have been sent if a loop was killed before it could record, a commit had no answer, or Spark lost a task or its
results. After all slots are fenced, each of their transactions is committed or aborted, and what can be read does not change any more.
docs/decisions/0057 has the reasons.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from confluent_kafka import KafkaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from orchestration.clock import EPOCH, LoopClock, literal
from orchestration.kafka.cluster import ClusterError, Partition
from orchestration.kafka.sent_records import MARGIN, sent_in
from orchestration.logs import event
from orchestration.loop.direct_sends import KNOWN_FOR, topics_published_to
from orchestration.loop.due import Due
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import FIRST_PAUSE, SENDS, Reason
from orchestration.loop.leadership import Leadership
from orchestration.loop.steps import StepReport
from orchestration.loop.window import PausedDestination
from orchestration.outbox.direct_ids import direct_id_pattern
from orchestration.tables.rows import collected
from publisher import DELIVERED, SessionLostError, SupersededError

log = logging.getLogger(__name__)

# Deliveries of unknown outcome may not be sent again before a time that is at most this far ahead: the longest transaction timeout.
_LONGEST_POSTPONED = timedelta(hours=1)

_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)

_UNREAD = "what was sent to {topic} last can't be read back: until it is, nothing is sent there, and commands and outboxes wait: {why}"

# Attempts to read what could not be read take a tenth of the time at most; the longest rest between two, in seconds.
_RESTS = 9
_LONGEST_REST = 60.0

ABSENT = "absent"
"""The outcome of a delivery whose outcome was unknown, and whose record is not in its topic."""


@dataclass(frozen=True)
class Unread:
    """A destination that can't be read to its end: sends to it since a moment, by the wall clock, may have no result.

    ends: where to end, of the partitions that have given an answer since the slots were fenced: nothing of ours lies behind.
    """

    since: datetime
    reason: Reason
    ends: Mapping[Partition, int]


@dataclass
class ReadBack:
    """Reads back what was sent.

    since: sends that began at this moment or later may have no result, by the wall clock, as records have its time; None: all have one,
    except to the destinations in `unread`. is_fenced: whether these are sends of an earlier loop, whose slots this loop has fenced since,
    and of no other. unread: destinations that could not be read when the others were. They stay paused until they are read.
    """

    leadership: Leadership
    hand_over: HandOver
    clock: LoopClock
    since: datetime | None = None
    is_fenced: bool = False
    unread: Mapping[str, Unread] = field(default_factory=dict)
    _again_at: float = 0.0

    @property
    def earliest(self) -> datetime | None:
        """Sends that began at this moment or later may have no result; None: all have one."""
        return min(filter(None, [self.since, *(one.since for one in self.unread.values())]), default=None)

    @property
    def is_due(self) -> bool:
        """Whether there is something to read, and it is time for it."""
        return self.since is not None or (bool(self.unread) and time.monotonic() >= self._again_at)

    def after(self, since: datetime, *, is_fenced: bool = False) -> None:
        """Notes that sends since this moment, in loop time, may have no result."""
        if not self.leadership.settings.transactions:
            # without transactions nothing tells when a send has ended: what has no result is sent again
            return
        # now: the wall clock may be set right before this is read
        self.since, self.is_fenced = min(filter(None, [self.since, since - self.clock.ahead])), is_fenced

    def run(self, report: StepReport, now: datetime) -> bool:
        """Records what was sent without a result. Returns whether it is known then, except of destinations that can't be read: these are
        paused, and read in a later step. If Kafka gives no answer, that is trouble of `sends`.

        Raises AppendError, and errors of Spark.
        """
        if self.since is None:
            if self.is_due:
                self._run_again(report, now)
            return True
        began = time.monotonic()
        denied = set[str]()
        try:
            with self.hand_over.lane.held():
                # nothing is sent until what was sent is known: it would lie after the ranges that are read
                self.hand_over.withdraw_all()
                if (unknown := self.hand_over.lane.unrecorded_since()) is not None:
                    # of a send that was recorded just now: it began earlier than what this was called for
                    self.since = min(self.since, unknown - self.clock.ahead)
                if not self.is_fenced:
                    self.leadership.fence_own()
                names = self._destinations(report.state.window.lowest_floor, self.since)
                # nothing was sent since to what is unread
                since = dict.fromkeys(names, self.since) | {topic: one.since for topic, one in self.unread.items()}
                ranges, unread = self._ranges(since, denied)
        except SupersededError as error:
            report.superseded_by = error.by
            return False
        except (ClusterError, SessionLostError) as error:
            report.failed(SENDS, Reason(f"what was sent last has to be read back before anything else is sent: {error}"))
            return False
        unread |= self._read_and_record(report, ranges, since.keys() - unread.keys(), denied, now, began)
        for topic, reason in unread.items():
            if topic not in self.unread:
                event(log, logging.WARNING, "destination_unread", topic=topic, reason=reason.text)
        self._keep_unread(unread, ranges, since)
        self.since = None
        report.recovered(SENDS)
        # what is of unknown outcome in a topic that may not be read is sent again, but later: the floor stays below it until then
        window = report.state.window if denied or unread else report.state.window.without_unknown()
        for topic, reason in unread.items():
            if topic not in window.paused:
                window = window.with_paused(topic, PausedDestination(reason, now + FIRST_PAUSE, floor=window.lowest_floor))
        report.change(window=window.look_now())
        self.hand_over.forget()
        return True

    def _run_again(self, report: StepReport, now: datetime) -> None:
        """Reads the destinations that could not be read before, as far as they can be read now: they are tried again at once.

        Nothing was sent there since their transactions were fenced.
        """
        began = time.monotonic()
        denied = set[str]()
        since = {topic: one.since for topic, one in self.unread.items()}
        ranges: dict[Partition, tuple[int, int]] = {}
        try:
            ranges, unread = self._ranges(since, denied)
            # asked first: a task that waits for the end of somebody's transaction would hold up this step
            stable = self.leadership.cluster.ends(ranges)
        except ClusterError as error:
            unread = {topic: Reason(_UNREAD.format(topic=topic, why=error), error.name) for topic in since}
        else:
            for partition, (begin, end) in ranges.items():
                if begin < end and stable.get(partition, -1) < end:
                    why = f"a transaction of another producer is open in partition {partition.number}"
                    unread.setdefault(partition.topic, Reason(_UNREAD.format(topic=partition.topic, why=why)))
        if since.keys() - unread.keys():
            readable = {partition: offsets for partition, offsets in ranges.items() if partition.topic not in unread}
            unread |= self._read_and_record(report, readable, since.keys() - unread.keys(), denied, now, began)
        window = report.state.window
        for topic in since.keys() - unread.keys():
            if topic in window.paused:
                window = window.with_paused(topic, replace(window.paused[topic], until=now, pause=FIRST_PAUSE)).look_now()
        report.change(window=window)
        self._keep_unread(unread, ranges, since)
        # a broker that gives no answer must not take up all the time of the loop
        self._again_at = time.monotonic() + min(_LONGEST_REST, _RESTS * (time.monotonic() - began))

    def _keep_unread(
        self, unread: Mapping[str, Reason], ranges: Mapping[Partition, tuple[int, int]], since: Mapping[str, datetime]
    ) -> None:
        ends = {partition: end for partition, (_, end) in ranges.items()} | self._known_ends()
        self.unread = {
            topic: Unread(since[topic], reason, {partition: end for partition, end in ends.items() if partition.topic == topic})
            for topic, reason in unread.items()
        }

    def _known_ends(self) -> dict[Partition, int]:
        return {partition: end for one in self.unread.values() for partition, end in one.ends.items()}

    def _destinations(self, floor: datetime, since: datetime) -> set[str]:
        """The destinations of all that may be open, and of what was sent directly. Also of what is due later: a loop whose clock was ahead
        has sent it.
        """
        stored = self.leadership.stored
        # from the beginning of its hour: what whole partitions meet is tested on no row
        hour = floor.replace(minute=0, second=0, microsecond=0)
        rows = stored.spark.sql(
            f"""
            select distinct topic from {stored.schema}.deliveries
            where kind is not null and topic is not null and due_at >= {literal(hour)}
            """
        ).collect()
        return {row["topic"] for row in rows} | topics_published_to(stored, since - KNOWN_FOR - MARGIN).keys()

    def _ranges(self, since: Mapping[str, datetime], denied: set[str]) -> tuple[dict[Partition, tuple[int, int]], dict[str, Reason]]:
        """The offsets to read: what was written to each topic since a moment; and the topics of which a partition gives no answer.

        Adds the topics that this user may not describe to `denied`. Raises ClusterError.
        """
        cluster = self.leadership.cluster
        millis = {topic: (moment - MARGIN - EPOCH) // timedelta(milliseconds=1) for topic, moment in since.items()}
        topics = cluster.describe(since, denied).values()
        silent: list[Partition] = []
        ranges = cluster.since({partition: millis[topic.name] for topic in topics for partition in topic.all_partitions}, silent)
        # else what others go on writing would have to be read, too
        ends = {partition: end for partition, (_, end) in ranges.items()} | self._known_ends()
        ranges = {partition: (min(begin, ends[partition]), ends[partition]) for partition, (begin, _) in ranges.items()}
        error = KafkaError(KafkaError._TIMED_OUT).name()
        return ranges, {
            partition.topic: Reason(_UNREAD.format(topic=partition.topic, why=f"no answer about partition {partition.number}"), error)
            for partition in silent
        }

    def _not_read(self, found: DataFrame, denied: set[str]) -> dict[str, Reason]:
        """The topics that were not read to their ends, and why. Those that may not be read are added to `denied` instead: what was sent
        there is sent again.
        """
        problems = found.where("problem is not null").select("topic", "error_code", "problem").orderBy("topic", "partition").collect()
        denied.update(row["topic"] for row in problems if row["error_code"] in _NOT_ALLOWED)
        if denied:
            event(
                log, logging.WARNING, "read_back_denied",
                topics=" ".join(sorted(denied)),
                hint="what was sent there without a result is sent again: allow redrive to read its destinations",
            )  # fmt: skip
        return {
            row["topic"]: Reason(_UNREAD.format(topic=row["topic"], why=row["problem"]), KafkaError(row["error_code"]).name())
            for row in problems
            if row["error_code"] not in _NOT_ALLOWED
        }

    def _read_and_record(
        self,
        report: StepReport,
        ranges: Mapping[Partition, tuple[int, int]],
        topics: set[str],
        denied: set[str],
        now: datetime,
        began: float,
    ) -> dict[str, Reason]:
        """Reads ranges, and records what is found there. Returns the topics that could not be read to their ends, and why.

        topics: those of which the ranges are all that is to be read; one that doesn't exist has none. denied: those that may not be read.
        Raises AppendError, and errors of Spark.
        """
        found = sent_in(self.leadership.stored.spark, self.leadership.settings, ranges)
        not_read = self._not_read(found, denied)
        delivered, absent = self._record(report, found, topics - denied - not_read.keys(), now)
        delivered += self._record_direct(found)
        report.count("read_back", delivered)
        records = [end - begin for begin, end in ranges.values() if begin < end]
        event(
            log, logging.INFO, "sends_read_back",
            delivered=delivered, absent=absent, partitions=len(records), records=sum(records), seconds=round(time.monotonic() - began, 1),
        )  # fmt: skip
        return not_read

    def _record(self, report: StepReport, found: DataFrame, read: set[str], now: datetime) -> tuple[int, int]:
        """Records what was found as delivered, and what is of unknown outcome and was not found as absent. Returns how many of each.

        read: the topics that were read to their ends; what is of unknown outcome in others stays so. Raises AppendError.
        """
        stored = self.leadership.stored
        places = found.where("delivery_id is not null")
        (found_due,) = collected(places.agg(F.min("due_at").alias("first"), F.max("due_at").alias("last")))
        since = min(filter(None, [found_due["first"], *(some.since for some in report.state.window.unknown)]), default=None)
        if since is None:
            return 0, 0
        # also what may not be sent yet, as its outcome is unknown
        upto = max(filter(None, [now + MARGIN, found_due["last"]]))
        what = Due(since, upto, upto + _LONGEST_POSTPONED)
        # whatever its order: what lies in a topic was sent
        waiting = replace(self.leadership.bulk_lane.waiting(what), ordered=0)
        if not waiting.rows:
            return 0, 0
        results = _results(self.leadership.bulk_lane.due(what, waiting), places, read)
        results = results.localCheckpoint(eager=True)
        count = {row["outcome"]: int(row["count"]) for row in results.groupBy("outcome").count().collect()}
        if count:
            stored.ledgers.append("publish_results", results.coalesce(1), self.clock.now())
        return count.get(DELIVERED, 0), count.get(ABSENT, 0)

    def _record_direct(self, found: DataFrame) -> int:
        """Records the rows of outboxes that were found and sent without a decision. Returns how many. Raises AppendError."""
        stored = self.leadership.stored
        pattern = direct_id_pattern(self.leadership.settings)
        direct = _first_places(found.where(F.col("delivery_id").rlike(pattern)))
        (first,) = collected(direct.agg(F.min("due_at").alias("due_at")))
        if first["due_at"] is None:
            return 0
        recorded = stored.spark.table(stored.ledgers.name("publish_results")).where(
            f"kind = 'publish' and outcome = '{DELIVERED}' and due_at >= {literal(first['due_at'])}"
        )
        results = direct.join(recorded.select("delivery_id", "due_at"), ["delivery_id", "due_at"], "left_anti").select(
            "delivery_id",
            "due_at",
            F.lit("publish").alias("kind"),
            F.regexp_extract("delivery_id", pattern, 1).alias("message_id"),
            "topic",
            F.lit(DELIVERED).alias("outcome"),
            "place.partition",
            "place.offset",
            "place.sent_at",
            F.lit("read_back").alias("found_by"),
        )
        results = results.localCheckpoint(eager=True)
        count = results.count()
        if count:
            stored.ledgers.append("publish_results", results.coalesce(1), self.clock.now())
        return count


def _first_places(places: DataFrame) -> DataFrame:
    """Where each delivery lies: the first record, if somebody has copied it within its topic, headers and all."""
    return places.groupBy("topic", "delivery_id", "due_at").agg(
        F.min_by(F.struct("partition", "offset", "sent_at"), "offset").alias("place")
    )


def _results(ready: DataFrame, places: DataFrame, read: set[str]) -> DataFrame:
    """Results of open deliveries: those that lie in their topics are delivered; others that have a `not_before` are absent, if their topic
    was read.
    """
    columns = (
        "delivery_id", "due_at", "kind", "message_id", "consumer_group", "original_topic", "original_partition", "original_offset",
    )  # fmt: skip
    first = F.broadcast(_first_places(places))
    joined = ready.select(*columns, "topic", "not_before").join(first, ["topic", "delivery_id", "due_at"], "left")
    # Spark can't plan a condition with an empty list
    is_absent = F.col("not_before").isNotNull() & F.col("topic").isin(*read) if read else F.lit(False)
    return joined.where(F.col("place").isNotNull() | is_absent).select(
        *columns,
        "topic",
        F.expr(f"if(place is null, '{ABSENT}', '{DELIVERED}')").alias("outcome"),
        "place.partition",
        "place.offset",
        "place.sent_at",
        F.lit("read_back").alias("found_by"),
    )
