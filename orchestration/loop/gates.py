"""Gates: what a blocking error holds up waits without cost, while one message after another is sent to see whether it works again.

Which scope an error holds up is decided in the fold (column `gate`). Here is what time does to it: what falls due behind a closed gate is
closed as `held`, all but the probe; a probe that succeeds opens the gate; what was held gets successors, the oldest first, at a bounded
rate. Both are asked for by events, like everything that is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from orchestration.logs import event
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.loop.due import Due, Waiting
from orchestration.loop.gate import Gate, Probe, announcement, answers_to_probes, scope_parts
from orchestration.loop.held import AGE, age, oldest_held, refused_by_rules
from orchestration.loop.sending import PublishStep
from orchestration.loop.steps import StepReport
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected
from orchestration.tables.synthetic_events import COORDINATES, gate_order

log = logging.getLogger(__name__)

# At most so much of the time since the last release counts: a loop that was away makes no flood.
_LONGEST_RELEASE = timedelta(seconds=10)

# How long a gate rests whose deliveries are all refused by the rules of today.
_REFUSED_PAUSE = timedelta(seconds=60)


@dataclass
class Gates:
    """What is done about gates. `gates` are those of the step that runs: taken from the state when it begins, given back in its result."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    settle: timedelta
    release_per_second: int
    gates: dict[str, Gate] = field(default_factory=dict)
    _candidates: dict[str, Row] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    """The scopes whose gate has changed since it was told."""
    changes: int = 0
    """How many gates have closed, opened, or let the last message go, since somebody set this to 0."""

    @property
    def closed(self) -> list[str]:
        """The scopes whose gate is closed."""
        return [scope for scope, gate in self.gates.items() if gate.is_closed]

    @property
    def next_look(self) -> datetime | None:
        """When to look for a probe, at the earliest; None: not before something else happens."""
        looks = [gate.next_probe for gate in self.gates.values() if gate.is_closed and gate.probe is None and not gate.waits_for]
        return min(looks, default=None)

    @contextmanager
    def of(self, report: StepReport) -> Iterator[None]:
        """Works with the gates of the state, and gives them back to it, also where a step fails halfway: what it has asked for counts."""
        self.gates = dict(report.state.gates)
        try:
            yield
        finally:
            report.change(gates=dict(self.gates))

    # ---------- what was decided

    def decided(self, after: int, upto: int, now: datetime, floor: datetime) -> datetime | None:
        """Closes the gates of blocking errors that were decided in some batches, and sees which probes were answered.

        floor: nothing that is open was due before. Returns when the first of what these batches send is due.
        """
        probes = {gate.probe.delivery_id: scope for scope, gate in self.gates.items() if gate.probe is not None}
        blocking = F.col("reason") == "blocking"
        answers = F.col("prior_delivery").isin(*probes) if probes else F.lit(False)
        matters = blocking | answers
        rows = collected(
            self.spark.sql(
                f"""
                select gate, reason, decision, prior_delivery, due_at, error_class, kind
                from {self.schema}.deliveries
                where batch > {after:d} and batch <= {upto:d}
                """
            )
            .groupBy(
                *(F.when(matters, F.col(column)).alias(column) for column in ("gate", "reason", "decision")),
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
            if row["reason"] == "blocking" and row["gate"] is not None:
                self._close(row, now, floor)
        for scope, gate in self.gates.items():
            if 0 < gate.waits_for <= upto:
                self._change(scope, waits_for=0)
        return min((row["first_due"] for row in rows if row["first_due"] is not None), default=None)

    def _close(self, row: Row, now: datetime, floor: datetime) -> None:
        gate = self.gates.get(row["gate"])
        if gate is not None and gate.is_closed:
            return
        self.gates[row["gate"]] = Gate(now, row["error_class"], row["due_at"], min(floor, gate.floor) if gate else floor)
        self.untold.add(row["gate"])
        self.changes += 1
        event(log, logging.WARNING, "circuit_breaker_opened", circuit_breaker=row["gate"], error_class=row["error_class"])

    # ---------- what is due

    def hold(self, publisher: PublishStep, what: Due, gated: Waiting) -> tuple[int, int]:
        """Closes what is due behind closed gates as held, but for the probe of each. Returns how many, and how many probes it asked for.

        gated: what is due there at most. Raises AppendError.
        """
        now = what.now
        self._candidates = {}
        waiting = publisher.due(what, gated).where(F.col("gate").isin(*self.closed)) if gated.rows else None
        due: dict[str, Row] = {}
        if waiting is not None:
            oldest = F.min_by(F.struct("delivery_id", "due_at", *AGE), F.struct(*AGE)).alias("oldest")
            by_gate = waiting.groupBy("gate").agg(oldest, F.count(F.lit(1)).alias("rows"))
            due = {row["gate"]: row for row in collected(by_gate)}
        looking = [
            scope for scope in self.closed if (gate := self.gates[scope]).probe is None and gate.next_probe <= now and gate.waits_for == 0
        ]
        asked = self._look_for_probes(looking, due, now)
        held = sum(int(row["rows"]) for row in due.values()) - len(self._candidates)
        if waiting is not None and held:
            self.ledgers.append("publish_results", self._held(waiting), now)
        return held, asked

    def _look_for_probes(self, scopes: Sequence[str], due: Mapping[str, Row], now: datetime) -> int:
        """Lets the oldest of what is due in each scope out as a probe; or asks for the oldest of what is held, if nothing is due, or that
        is older.

        due: the oldest that is due, by scope. Returns how many it asked for.
        """
        self._candidates = {scope: due[scope]["oldest"] for scope in scopes if scope in due and not self.gates[scope].picks_anew}
        others = [scope for scope in scopes if scope not in self._candidates]
        oldest = {row["gate"]: row for row in self._oldest_held(dict.fromkeys(others, 1))}
        asked: list[Row] = []
        for scope in others:
            first, held = due.get(scope), oldest.get(scope)
            self._change(scope, picks_anew=False)
            if held is not None and (first is None or age(held) < age(first["oldest"])):
                asked.append(held)
            elif first is not None:
                self._candidates[scope] = first["oldest"]
            else:
                self._open(scope, now, "nothing waits behind it")
        self._order("probe", asked, now)
        return len(asked)

    def _held(self, waiting: DataFrame) -> DataFrame:
        """Results for what is due, but for the probes."""
        probes = [(row["delivery_id"], row["due_at"]) for row in self._candidates.values()]
        if probes:
            # by a join: a condition that names each of hundreds of probes is one that Spark can't plan
            listed = self.spark.createDataFrame(probes, "delivery_id string, due_at timestamp")
            waiting = waiting.join(F.broadcast(listed), ["delivery_id", "due_at"], "left_anti")
        return waiting.select(
            *("delivery_id", "due_at", "kind", "message_id", "consumer_group", "topic"),
            F.lit("held").alias("outcome"),
            F.concat(F.lit("gate "), "gate").alias("error_message"),
            *("original_topic", "original_partition", "original_offset"),
        )

    def sent(self, after: int, now: datetime) -> None:
        """Sees what became of the probes that were let out: of the sends after a batch."""
        if not self._candidates:
            return
        ids = [row["delivery_id"] for row in self._candidates.values()]
        results = self.spark.sql(f"select * from {self.schema}.publish_results where batch > {after:d}").where(
            F.col("delivery_id").isin(*ids)
        )
        outcomes = {row["delivery_id"]: row for row in collected(results)}
        for scope, candidate in self._candidates.items():
            row = outcomes.get(candidate["delivery_id"])
            if row is None:
                continue
            if row["outcome"] == "delivered":
                self._is_under_way(scope, row)
            elif row["outcome"] == "unknown":
                # it may be sent then, and nothing else before
                self._change(scope, next_probe=row["not_before"])
            else:
                self._change(scope, picks_anew=True, next_probe=now)
        self._candidates = {}

    def _is_under_way(self, scope: str, row: Row) -> None:
        probes = self.gates[scope].probes + 1
        self._change(scope, probes=probes, probe=Probe.of(row))
        event(log, logging.INFO, "probe_sent", circuit_breaker=scope, probe=probes, delivery_id=row["delivery_id"])

    # ---------- what comes of it

    def look(self, settled: Mapping[Place, int], consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Opens the gates whose probe has succeeded.

        That is known where the group commits offsets; elsewhere it counts that no report came in time. now, complete: as for
        Consumers.look.
        """
        for scope in self.closed:
            gate = self.gates[scope]
            if gate.probe is None:
                continue
            place, sent_at = gate.probe.place, gate.probe.sent_at
            if place is not None and settled.get(place, 0) > gate.probe.offset:
                self._open(scope, now, "a probe was processed")
            elif (
                complete.of([scope_parts(scope)[1]])
                and sent_at + self.settle <= now
                and (place is None or consumers.is_silent(place, sent_at))
            ):
                self._open(scope, now, "no report about a probe came")

    def _open(self, scope: str, now: datetime, why: str) -> None:
        self._change(scope, opened_at=now, released_at=now, probe=None)
        self.untold.add(scope)
        self.changes += 1
        event(log, logging.WARNING, "circuit_breaker_closed", circuit_breaker=scope, reason=why)

    def release(self, now: datetime) -> int:
        """Asks for successors of what opened gates have held, at the rate that is set; returns how many. Raises AppendError."""
        opened = {
            scope: gate
            for scope, gate in self.gates.items()
            if gate.opened_at is not None and not gate.waits_for and (gate.next_release is None or gate.next_release <= now)
        }
        if not opened:
            return 0
        most = {
            scope: max(1, round(min(now - (gate.released_at or now), _LONGEST_RELEASE).total_seconds() * self.release_per_second))
            for scope, gate in opened.items()
        }
        asked = self._oldest_held(most)
        self._order("release", asked, now)
        busy = {row["gate"] for row in asked}
        idle = [scope for scope in opened if scope not in busy]
        refused = refused_by_rules(self.spark, self.schema, self._floor(idle), idle) if idle else {}
        for scope, gate in opened.items():
            self._change(scope, released_at=now, next_release=None)
            if scope in refused:
                if gate.refused != refused[scope]:
                    event(log, logging.WARNING, "held_deliveries_refused", circuit_breaker=scope, deliveries=refused[scope])
                self._change(scope, refused=refused[scope], next_release=now + _REFUSED_PAUSE)
            elif scope not in busy and gate.opened_at is not None and gate.opened_at < now and scope not in self.untold:
                del self.gates[scope]
                self.changes += 1
        return len(asked)

    def _oldest_held(self, most: Mapping[str, int]) -> list[Row]:
        return oldest_held(self.spark, self.schema, self._floor(most), most) if most else []

    def _floor(self, scopes: Collection[str]) -> datetime:
        """Nothing that these gates hold was due before."""
        return min(self.gates[scope].floor for scope in scopes)

    def _order(self, kind: str, deliveries: Sequence[Row], now: datetime) -> None:
        """Writes one event for each delivery, all in one append."""
        if not deliveries:
            return
        batch = self.ledgers.next_batch
        rows = [(*gate_order(batch, place), row["delivery_id"], row["due_at"], row["gate"]) for place, row in enumerate(deliveries)]
        orders = self.spark.createDataFrame(rows, f"{COORDINATES}, delivery_id string, due_at timestamp, detail string")
        batch = self.ledgers.append("events", orders.withColumn("kind", F.lit(kind)), now)
        for scope in {row["gate"] for row in deliveries}:
            self._change(scope, waits_for=batch)

    # ---------- where a start goes on

    def tell_all(self) -> None:
        """Tells of all gates again: whether the last loop has told of its last changes isn't known."""
        self.untold = set(self.gates)

    def resume(self, after: int) -> None:
        """Finds the probes that the last loop sent after its last row of `ticks`."""
        if not self.closed:
            return
        sent = self.spark.sql(
            f"select * from {self.schema}.publish_results where batch > {after:d} and outcome = 'delivered' and kind <> 'dead_letter'"
        )
        (dues,) = sent.agg(F.unix_millis(F.min("due_at")).alias("first"), F.unix_millis(F.max("due_at")).alias("last")).collect()
        if dues["first"] is None:
            return
        # with both as literals: the whole wheel would be read for a few sends
        gated = self.spark.sql(
            f"""
            select delivery_id, due_at, gate from {self.schema}.deliveries
            where due_at >= timestamp_millis({dues["first"]:d}) and due_at <= timestamp_millis({dues["last"]:d})
            """
        ).where(F.col("gate").isin(*self.closed))
        probes = sent.join(gated, ["delivery_id", "due_at"])
        for row in collected(probes.dropDuplicates(["delivery_id"])):
            self._is_under_way(row["gate"], row)

    def find_undecided(self, after: int) -> None:
        """Finds what was asked for and is not decided yet, by the events after a batch: asked for again, it would be released twice."""
        if not self.gates:
            return
        asked = self.spark.sql(
            f"""
            select detail as scope, max(batch) as batch from {self.schema}.events
            where batch > {after:d} and kind in ('probe', 'release')
            group by detail
            """
        )
        for row in asked.collect():
            if row["scope"] in self.gates:
                self._change(row["scope"], waits_for=row["batch"])

    def _change(self, scope: str, **fields: Any) -> None:
        self.gates[scope] = replace(self.gates[scope], **fields)

    def announcements(self) -> list[tuple[str, str]]:
        """What there is to tell about gates that have changed: scope, and its state as JSON."""
        return [(scope, announcement(scope, self.gates[scope])) for scope in sorted(self.untold) if scope in self.gates]
