"""Circuit breakers: after a blocking error, retries wait without counting attempts, while one message after another is sent as a probe.

The decide step writes the key of its circuit breaker beside each retry (column `breaker_key`). This module does what depends on time: while
a circuit breaker is open, the deliveries that fall due under its key are closed as `held`, except the probe; a probe that succeeds closes
the circuit breaker; then the held deliveries get successors, the oldest first, at a bounded rate. To probe or release a held delivery,
this module appends an order to `events`: the decide step makes decisions about inputs only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from orchestration.logs import event
from orchestration.loop.circuit_breaker import CircuitBreaker, Probe, answers_to_probes, key_parts
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.loop.due import Due, Waiting
from orchestration.loop.held import AGE, age, oldest_held, refused_by_rules
from orchestration.loop.sending import BulkLane
from orchestration.loop.steps import StepReport
from orchestration.tables import synthetic_events
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected

log = logging.getLogger(__name__)

# The longest time since the last release that counts for the rate: without it, a release after a long tick would be a flood. After a start,
# no time counts.
_LONGEST_RELEASE = timedelta(seconds=10)

# How long a circuit breaker orders no releases after the rules in force have refused them.
_REFUSED_PAUSE = timedelta(seconds=60)


@dataclass
class CircuitBreakers:
    """All circuit breakers. The step that runs takes `breakers` from the state when it begins, and returns them in its result."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    settle: timedelta
    release_per_second: int
    breakers: dict[str, CircuitBreaker] = field(default_factory=dict)
    _candidates: dict[str, Row] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    """The keys whose circuit breaker has changed since a record of it was written."""
    changes: int = 0
    """How many circuit breakers have opened, closed, or released their last message, since this was set to 0."""

    @property
    def open(self) -> list[str]:
        """The keys whose circuit breaker is open: of the retries under these keys, only probes are sent."""
        return [key for key, breaker in self.breakers.items() if breaker.is_open]

    @property
    def lets_out(self) -> bool:
        """Whether this step sends probes."""
        return bool(self._candidates)

    @property
    def next_look(self) -> datetime | None:
        """The earliest `next_probe` of the open circuit breakers that have no probe under way or ordered; None if there are none."""
        looking = (one for one in self.breakers.values() if one.is_open and one.probe is None and not one.waits_for)
        return min((one.next_probe for one in looking), default=None)

    @contextmanager
    def of(self, report: StepReport) -> Iterator[None]:
        """Takes the circuit breakers from the state and puts them back, also if the step fails halfway: events that it appended count."""
        self.breakers = dict(report.state.breakers)
        try:
            yield
        finally:
            report.change(breakers=dict(self.breakers))

    # ---------- what was decided

    def decided(self, after: int, upto: int, now: datetime, floor: datetime) -> datetime | None:
        """Opens circuit breakers for the blocking errors of the batches in (after, upto], and notes which probes these batches answer.

        floor: no open delivery was due before. Returns the earliest due time of the deliveries in these batches; None if there are none.
        """
        probes = {breaker.probe.delivery_id: key for key, breaker in self.breakers.items() if breaker.probe is not None}
        blocking = F.col("reason") == "blocking"
        answers = F.col("prior_delivery").isin(*probes) if probes else F.lit(False)
        matters = blocking | answers
        rows = collected(
            self.spark.sql(
                f"""
                select breaker_key, reason, decision, prior_delivery, due_at, error_class, kind
                from {self.schema}.deliveries
                where batch > {after:d} and batch <= {upto:d}
                """
            )
            .groupBy(
                *(F.when(matters, F.col(column)).alias(column) for column in ("breaker_key", "reason", "decision")),
                F.when(answers, F.col("prior_delivery")).alias("answered"),
            )
            .agg(
                F.min("due_at").alias("due_at"),
                F.min("error_class").alias("error_class"),
                F.min(F.when(F.col("kind").isNotNull(), F.col("due_at"))).alias("first_due"),
            )
        )
        for probe, answer in answers_to_probes(rows).items():
            again = answer["decision"] == "retry"
            self._change(probes[probe], probe=None, picks_anew=not again, next_probe=answer["due_at"] if again else now)
        for row in rows:
            if row["reason"] == "blocking" and row["breaker_key"] is not None:
                self._open(row, now, floor)
        for key, breaker in self.breakers.items():
            if 0 < breaker.waits_for <= upto:
                self._change(key, waits_for=0)
        return min((row["first_due"] for row in rows if row["first_due"] is not None), default=None)

    def _open(self, row: Row, now: datetime, floor: datetime) -> None:
        breaker = self.breakers.get(row["breaker_key"])
        if breaker is not None and breaker.is_open:
            return
        key = row["breaker_key"]
        self.breakers[key] = CircuitBreaker(now, row["error_class"], row["due_at"], min(floor, breaker.floor) if breaker else floor)
        self.changed.add(key)
        self.changes += 1
        event(log, logging.WARNING, "circuit_breaker_opened", circuit_breaker=key, error_class=row["error_class"])

    # ---------- what is due

    def hold(self, bulk_lane: BulkLane, what: Due, blocked: Waiting, unread: Collection[str] = ()) -> tuple[int, int]:
        """Closes the deliveries that are due under open circuit breakers as `held`, except the probe of each.

        Returns how many it closed, and how many probes it ordered. blocked: an upper bound of what is due there. unread: destinations of
        which it isn't known what was sent there: what goes there stays as it is, and no probe is sent before it. Raises AppendError.
        """
        now = what.now
        self._candidates = {}
        waiting = bulk_lane.due(what, blocked).where(F.col("breaker_key").isin(*self.open)) if blocked.rows else None
        due: dict[str, Row] = {}
        behind = set[str]()
        if waiting is not None:
            oldest = F.min_by(F.struct("delivery_id", "due_at", *AGE), F.struct(*AGE)).alias("oldest")
            is_unread = F.coalesce(F.col("topic").isin(*unread), F.lit(False)) if unread else F.lit(False)
            rows = collected(waiting.groupBy("breaker_key", is_unread.alias("is_unread")).agg(oldest, F.count(F.lit(1)).alias("rows")))
            due = {row["breaker_key"]: row for row in rows if not row["is_unread"]}
            behind = {row["breaker_key"] for row in rows if row["is_unread"]}
            waiting = waiting.where(~is_unread)
        looking = [key for key in self.open if self.breakers[key].is_looking(now) and key not in behind]
        asked = self._look_for_probes(looking, due, now)
        held = sum(int(row["rows"]) for row in due.values()) - len(self._candidates)
        if waiting is not None and held:
            self.ledgers.append("publish_results", self._held(waiting), now)
        return held, asked

    def _look_for_probes(self, keys: Sequence[str], due: Mapping[str, Row], now: datetime) -> int:
        """Lets the oldest due delivery of each key out as a probe, or orders a probe of the oldest held one.

        The held one is chosen if nothing is due, or if `picks_anew` is set and it is older. If nothing is due or held, the circuit breaker
        closes. due: the oldest that is due, by key. Returns how many probes it ordered.
        """
        self._candidates = {key: due[key]["oldest"] for key in keys if key in due and not self.breakers[key].picks_anew}
        others = [key for key in keys if key not in self._candidates]
        oldest = {row["breaker_key"]: row for row in self._oldest_held(dict.fromkeys(others, 1))}
        asked: list[Row] = []
        for key in others:
            first, held = due.get(key), oldest.get(key)
            self._change(key, picks_anew=False)
            if held is not None and (first is None or age(held) < age(first["oldest"])):
                asked.append(held)
            elif first is not None:
                self._candidates[key] = first["oldest"]
            else:
                self._close(key, now, "no retry is due or held")
        self._order("probe", asked, now)
        return len(asked)

    def _held(self, waiting: DataFrame) -> DataFrame:
        """`held` results for the deliveries that are due, except the probes."""
        probes = [(row["delivery_id"], row["due_at"]) for row in self._candidates.values()]
        if probes:
            # a join, as Spark can't plan a condition that names hundreds of probes
            listed = self.spark.createDataFrame(probes, "delivery_id string, due_at timestamp")
            waiting = waiting.join(F.broadcast(listed), ["delivery_id", "due_at"], "left_anti")
        return waiting.select(
            *("delivery_id", "due_at", "kind", "message_id", "consumer_group", "topic"),
            F.lit("held").alias("outcome"),
            F.concat(F.lit("circuit breaker "), "breaker_key").alias("error_message"),
            *("original_topic", "original_partition", "original_offset"),
        )

    def sent(self, after: int, now: datetime) -> None:
        """Notes the results that probes have had in the batches after `after`."""
        if not self._candidates:
            return
        ids = [row["delivery_id"] for row in self._candidates.values()]
        results = self.spark.sql(f"select * from {self.schema}.publish_results where batch > {after:d}").where(
            F.col("delivery_id").isin(*ids)
        )
        outcomes = {row["delivery_id"]: row for row in collected(results)}
        for key, candidate in self._candidates.items():
            row = outcomes.get(candidate["delivery_id"])
            if row is None:
                continue
            if row["outcome"] == "delivered":
                self._is_under_way(key, row)
            elif row["outcome"] == "unknown":
                # the probe may be sent again at that time; before it, no other one is let out
                self._change(key, next_probe=row["not_before"])
            else:
                self._change(key, picks_anew=True, next_probe=now)
        self._candidates = {}

    def _is_under_way(self, key: str, row: Row) -> None:
        probes = self.breakers[key].probes + 1
        self._change(key, probes=probes, probe=Probe.of(row))
        event(log, logging.INFO, "probe_sent", circuit_breaker=key, probe=probes, delivery_id=row["delivery_id"])

    # ---------- closing, and releasing what was held

    def look(self, settled: Mapping[Place, int], consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Closes the circuit breakers whose probe has succeeded.

        A probe has succeeded if its offset is settled; if its group commits no offsets, when no report about it came within the time to
        settle. now, complete: as for Consumers.look.
        """
        for key in self.open:
            breaker = self.breakers[key]
            if breaker.probe is None:
                continue
            place, sent_at = breaker.probe.place, breaker.probe.sent_at
            offset = breaker.probe.offset
            if place is not None and offset is not None and settled.get(place, 0) > offset:
                self._close(key, now, "a probe was processed")
            elif (
                complete.of([key_parts(key)[1]]) and sent_at + self.settle <= now and (place is None or consumers.is_silent(place, sent_at))
            ):
                self._close(key, now, "no report about a probe came")

    def _close(self, key: str, now: datetime, why: str) -> None:
        self._change(key, closed_at=now, released_at=now, probe=None)
        self.changed.add(key)
        self.changes += 1
        event(log, logging.WARNING, "circuit_breaker_closed", circuit_breaker=key, reason=why)

    def release(self, now: datetime) -> int:
        """Orders successors of what closed circuit breakers hold: for each at `release_per_second`, at least one; returns how many.

        Raises AppendError.
        """
        closed = {
            key: breaker
            for key, breaker in self.breakers.items()
            if breaker.closed_at is not None and not breaker.waits_for and (breaker.next_release is None or breaker.next_release <= now)
        }
        if not closed:
            return 0
        most = {
            key: max(1, round(min(now - (breaker.released_at or now), _LONGEST_RELEASE).total_seconds() * self.release_per_second))
            for key, breaker in closed.items()
        }
        asked = self._oldest_held(most)
        self._order("release", asked, now)
        busy = {row["breaker_key"] for row in asked}
        idle = [key for key in closed if key not in busy]
        refused = refused_by_rules(self.spark, self.schema, self._floor(idle), idle) if idle else {}
        for key, breaker in closed.items():
            self._change(key, released_at=now, next_release=None)
            if key in refused:
                if breaker.refused != refused[key]:
                    event(log, logging.WARNING, "held_deliveries_refused", circuit_breaker=key, deliveries=refused[key])
                self._change(key, refused=refused[key], next_release=now + _REFUSED_PAUSE)
            elif key not in busy and breaker.closed_at is not None and breaker.closed_at < now and key not in self.changed:
                del self.breakers[key]
                self.changes += 1
        return len(asked)

    def _oldest_held(self, most: Mapping[str, int]) -> list[Row]:
        return oldest_held(self.spark, self.schema, self._floor(most), most) if most else []

    def _floor(self, keys: Collection[str]) -> datetime:
        """The time before which nothing that these circuit breakers hold was due."""
        return min(self.breakers[key].floor for key in keys)

    def _order(self, kind: synthetic_events.BreakerOrder, deliveries: Sequence[Row], now: datetime) -> None:
        """Writes one event for each delivery, all in one append."""
        if not deliveries:
            return
        batch = self.ledgers.next_batch
        orders = [
            synthetic_events.breaker_order(batch, place, kind, one["delivery_id"], one["due_at"], one["breaker_key"])
            for place, one in enumerate(deliveries)
        ]
        batch = self.ledgers.append("events", synthetic_events.as_rows(self.spark, orders), now)
        for key in {row["breaker_key"] for row in deliveries}:
            self._change(key, waits_for=batch)

    # ---------- after a start

    def all_changed(self) -> None:
        """Has the records of all circuit breakers written again: the loop before may have ended without writing its last changes."""
        self.changed = set(self.breakers)

    def resume(self, after: int, were_open: Collection[str]) -> None:
        """Finds the probes that the last loop sent after its last row of `ticks`. What was sent before one had opened is no probe."""
        if not (keys := {*self.open} & {*were_open}):
            return
        sent = self.spark.sql(
            f"select * from {self.schema}.publish_results where batch > {after:d} and outcome = 'delivered' and kind <> 'dead_letter'"
        )
        (dues,) = sent.agg(F.unix_millis(F.min("due_at")).alias("first"), F.unix_millis(F.max("due_at")).alias("last")).collect()
        if dues["first"] is None:
            return
        # both bounds as literals: without them, Spark would read the whole wheel for a few sends
        blocked = self.spark.sql(
            f"""
            select delivery_id, due_at, breaker_key from {self.schema}.deliveries
            where due_at >= timestamp_millis({dues["first"]:d}) and due_at <= timestamp_millis({dues["last"]:d})
            """
        ).where(F.col("breaker_key").isin(*keys))
        probes = sent.join(blocked, ["delivery_id", "due_at"])
        for row in collected(probes.dropDuplicates(["delivery_id"])):
            self._is_under_way(row["breaker_key"], row)

    def find_undecided(self, after: int) -> None:
        """Finds probes and releases that are ordered but not decided, by the events after a batch, so that none is ordered twice."""
        if not self.breakers:
            return
        asked = self.spark.sql(
            f"""
            select detail as key, max(batch) as batch from {self.schema}.events
            where batch > {after:d} and kind in ('probe', 'release')
            group by detail
            """
        )
        for row in asked.collect():
            if row["key"] in self.breakers:
                self._change(row["key"], waits_for=row["batch"])

    def _change(self, key: str, **fields: Any) -> None:
        self.breakers[key] = replace(self.breakers[key], **fields)

    def records(self, record_of: Callable[[str, CircuitBreaker], str]) -> list[tuple[str, str]]:
        """The key and the record of each circuit breaker that has changed."""
        return [(key, record_of(key, self.breakers[key])) for key in sorted(self.changed) if key in self.breakers]
