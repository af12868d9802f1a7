"""Gates: what a blocking error holds up waits without cost, while one message after another is sent to see whether it works again.

Which scope an error holds up is decided in the fold (column `gate`). Here is what time does to it: what falls due behind a closed gate is
closed as `held`, all but the probe; a probe that succeeds opens the gate; what was held gets successors, the oldest first, at a bounded
rate. Both are asked for by events, like everything that is decided.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.loop.publish import Due, PublishStep, Waiting
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected
from orchestration.tables.synthetic_events import COORDINATES, gate_order

log = logging.getLogger(__name__)

# At most so much of the time since the last release counts: a loop that was away makes no flood.
_LONGEST_RELEASE = timedelta(seconds=10)

# How long a gate rests whose deliveries are all refused by the rules of today.
_REFUSED_PAUSE = timedelta(seconds=60)
# What doesn't tell that a probe has failed: a second report of it, and what is said of it. What was refused for its destination does.
_NO_ANSWER = ("duplicate", "noted", "discarded", "restored", "purged")
_REFUSED_ORDER = ("wrong_kind_of_delivery", "payload_was_dropped", "not_discarded")

# What goes first.
_AGE = ("first_failed_at", "original_partition", "original_offset")


@dataclass(frozen=True)
class Probe:
    """A delivery that was sent to see whether its scope works again, and where it lies."""

    delivery_id: str
    due_at: datetime
    sent_at: datetime
    consumer_group: str | None
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Place | None:
        """Where it waits for its group; None where that is unknown."""
        return None if self.consumer_group is None else Place(self.consumer_group, self.topic, self.partition)


@dataclass
class Gate:
    """The gate of one scope.

    floor: nothing that it holds was due before. next_probe: when to look for a probe, while none is under way. waits_for: the batch of
    events by which something was asked for, which must be decided before anything else is. picks_anew: whether the message that was
    probed last is dead, or could not be sent, so that the oldest of all is next; else it is that message again. next_release: when to
    ask again for what it held, where the rules refused it; refused: how many deliveries that were.
    """

    closed_at: datetime
    error_class: str | None
    next_probe: datetime
    floor: datetime
    opened_at: datetime | None = None
    probes: int = 0
    probe: Probe | None = None
    waits_for: int = 0
    picks_anew: bool = False
    released_at: datetime | None = None
    next_release: datetime | None = None
    refused: int = 0


def answers_to_probes(rows: Iterable[Row]) -> dict[str, Row]:
    """Of each probe that failed, the decision that answers it, in whichever order they come: its delivery id, and that decision.

    A delivery has one successor, which a report that was refused for its destination may precede, and any number of duplicates.
    """
    answers: dict[str, Row] = {}
    for row in rows:
        probe = row["answered"]
        if probe is None or row["decision"] in _NO_ANSWER or row["reason"] in _REFUSED_ORDER:
            continue
        if probe not in answers or answers[probe]["decision"] == "refused":
            answers[probe] = row
    return answers


@dataclass
class Gates:
    """All gates of a loop."""

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    settle: timedelta
    release_per_second: int
    _gates: dict[str, Gate] = field(default_factory=dict)
    _candidates: dict[str, Row] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    """The scopes whose gate has changed since it was told."""
    changes: int = 0
    """How many gates have closed, opened, or let the last message go, since somebody set this to 0."""

    @property
    def closed(self) -> list[str]:
        """The scopes whose gate is closed."""
        return [scope for scope, gate in self._gates.items() if gate.opened_at is None]

    @property
    def next_look(self) -> datetime | None:
        """When to look for a probe, at the earliest; None: not before something else happens."""
        looks = [gate.next_probe for gate in self._gates.values() if gate.opened_at is None and gate.probe is None and not gate.waits_for]
        return min(looks, default=None)

    # ---------- what was decided

    def decided(self, after: int, upto: int, now: datetime, floor: datetime) -> datetime | None:
        """Closes the gates of blocking errors that were decided in some batches, and sees which probes were answered.

        floor: nothing that is open was due before. Returns when the first of what these batches send is due.
        """
        probes = {gate.probe.delivery_id: scope for scope, gate in self._gates.items() if gate.probe is not None}
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
            gate = self._gates[probes[probe]]
            gate.probe = None
            gate.picks_anew = answer["decision"] != "retry"
            gate.next_probe = answer["due_at"] if answer["decision"] == "retry" else now
        for row in rows:
            if row["reason"] == "blocking" and row["gate"] is not None:
                self._close(row, now, floor)
        for gate in self._gates.values():
            gate.waits_for = gate.waits_for if gate.waits_for > upto else 0
        return min((row["first_due"] for row in rows if row["first_due"] is not None), default=None)

    def _close(self, row: Row, now: datetime, floor: datetime) -> None:
        gate = self._gates.get(row["gate"])
        if gate is not None and gate.opened_at is None:
            return
        self._gates[row["gate"]] = Gate(now, row["error_class"], row["due_at"], min(floor, gate.floor) if gate else floor)
        self.untold.add(row["gate"])
        self.changes += 1
        log.warning("gate %s is closed: %s", row["gate"], row["error_class"])

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
            oldest = F.min_by(F.struct("delivery_id", "due_at", *_AGE), F.struct(*_AGE)).alias("oldest")
            by_gate = waiting.groupBy("gate").agg(oldest, F.count(F.lit(1)).alias("rows"))
            due = {row["gate"]: row for row in collected(by_gate)}
        looking = [
            scope for scope in self.closed if (gate := self._gates[scope]).probe is None and gate.next_probe <= now and gate.waits_for == 0
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
        self._candidates = {scope: due[scope]["oldest"] for scope in scopes if scope in due and not self._gates[scope].picks_anew}
        others = [scope for scope in scopes if scope not in self._candidates]
        oldest = {row["gate"]: row for row in self._oldest_held(dict.fromkeys(others, 1))}
        asked: list[Row] = []
        for scope in others:
            gate, first, held = self._gates[scope], due.get(scope), oldest.get(scope)
            gate.picks_anew = False
            if held is not None and (first is None or _age(held) < _age(first["oldest"])):
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
            gate, row = self._gates[scope], outcomes.get(candidate["delivery_id"])
            if row is None:
                continue
            if row["outcome"] == "delivered":
                self._is_under_way(scope, row)
            elif row["outcome"] == "unknown":
                # it may be sent then, and nothing else before
                gate.next_probe = row["not_before"]
            else:
                gate.picks_anew, gate.next_probe = True, now
        self._candidates = {}

    def _is_under_way(self, scope: str, row: Row) -> None:
        gate = self._gates[scope]
        gate.probes += 1
        gate.probe = _probe(row)
        log.info("gate %s: probe %d is sent: %s", scope, gate.probes, row["delivery_id"])

    # ---------- what comes of it

    def look(self, settled: Mapping[Place, int], consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Opens the gates whose probe has succeeded.

        That is known where the group commits offsets; elsewhere it counts that no report came in time. now, complete: as for
        Consumers.look.
        """
        for scope in self.closed:
            gate = self._gates[scope]
            if gate.probe is None:
                continue
            place, sent_at = gate.probe.place, gate.probe.sent_at
            if place is not None and settled.get(place, 0) > gate.probe.offset:
                self._open(scope, now, "a probe was processed")
            elif (
                complete.of([_parts(scope)[1]]) and sent_at + self.settle <= now and (place is None or consumers.is_silent(place, sent_at))
            ):
                self._open(scope, now, "no report about a probe came")

    def _open(self, scope: str, now: datetime, why: str) -> None:
        gate = self._gates[scope]
        gate.opened_at, gate.released_at, gate.probe = now, now, None
        self.untold.add(scope)
        self.changes += 1
        log.warning("gate %s is open again: %s", scope, why)

    def release(self, now: datetime) -> int:
        """Asks for successors of what opened gates have held, at the rate that is set; returns how many. Raises AppendError."""
        opened = {
            scope: gate
            for scope, gate in self._gates.items()
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
        refused = self._refused(idle)
        for scope, gate in opened.items():
            gate.released_at, gate.next_release = now, None
            if scope in refused:
                if gate.refused != refused[scope]:
                    log.warning(
                        "gate %s is open, and the rules have no place any more for %d deliveries that it held: they wait for other rules",
                        scope, refused[scope],
                    )  # fmt: skip
                gate.refused, gate.next_release = refused[scope], now + _REFUSED_PAUSE
            elif scope not in busy and gate.opened_at is not None and gate.opened_at < now and scope not in self.untold:
                del self._gates[scope]
                self.changes += 1
        return len(asked)

    def _oldest_held(self, most: Mapping[str, int]) -> list[Row]:
        """The oldest of what is held, by scope at most so many, in the order in which they are to go."""
        if not most:
            return []
        asked = self.spark.createDataFrame(list(most.items()), "gate string, most int")
        ranked = (
            self._held_by(most)
            .where("not is_refused")
            .select("gate", "delivery_id", "due_at", *_AGE)
            .withColumn("place", F.row_number().over(Window.partitionBy("gate").orderBy(*_AGE)))
        )
        few = ranked.join(F.broadcast(asked), "gate").where("place <= most")
        return collected(few.orderBy("gate", "place"))

    def _refused(self, scopes: Collection[str]) -> dict[str, int]:
        """How many deliveries each scope holds whose release the rules of today refuse: asked for again, they would be refused again."""
        if not scopes:
            return {}
        refused = self._held_by(scopes).where("is_refused").groupBy("gate").count()
        return {row["gate"]: int(row["count"]) for row in collected(refused)}

    def _held_by(self, scopes: Collection[str]) -> DataFrame:
        floor = F.lit(min(self._gates[scope].floor for scope in scopes))
        held = self.spark.table(f"{self.schema}.held_deliveries")
        return held.where(F.col("gate").isin(*scopes) & (F.col("due_at") >= floor) & (F.col("due_hour") >= F.date_trunc("hour", floor)))

    def _order(self, kind: str, deliveries: Sequence[Row], now: datetime) -> None:
        """Writes one event for each delivery, all in one append."""
        if not deliveries:
            return
        batch = self.ledgers.next_batch
        rows = [(*gate_order(batch, place), row["delivery_id"], row["due_at"], row["gate"]) for place, row in enumerate(deliveries)]
        orders = self.spark.createDataFrame(rows, f"{COORDINATES}, delivery_id string, due_at timestamp, detail string")
        batch = self.ledgers.append("events", orders.withColumn("kind", F.lit(kind)), now)
        for scope in {row["gate"] for row in deliveries}:
            self._gates[scope].waits_for = batch

    # ---------- what is written down

    def remember(self, gates: Mapping[str, Row]) -> None:
        """Goes on with what the last row of `ticks` says."""
        for scope, row in gates.items():
            self._gates[scope] = Gate(
                closed_at=row["closed_at"],
                error_class=row["error_class"],
                next_probe=row["next_probe"],
                floor=row["floor"],
                opened_at=row["opened_at"],
                probes=row["probes"],
                probe=_probe(row["probe"]) if row["probe"] else None,
            )
        self.untold = set(self._gates)

    def resume(self, after: int) -> None:
        """Finds the probes that the last loop sent after its last row of `ticks`."""
        if not self.closed:
            return
        sent = self._results_after(after).where("outcome = 'delivered' and kind <> 'dead_letter'")
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
        if not self._gates:
            return
        asked = self.spark.sql(
            f"""
            select detail as scope, max(batch) as batch from {self.schema}.events
            where batch > {after:d} and kind in ('probe', 'release')
            group by detail
            """
        )
        for row in asked.collect():
            gate = self._gates.get(row["scope"])
            if gate is not None:
                gate.waits_for = row["batch"]

    def _results_after(self, batch: int) -> DataFrame:
        return self.spark.sql(f"select * from {self.schema}.publish_results where batch > {batch:d}")

    def state(self) -> dict[str, tuple[object, ...]]:
        """The gates, as a row of `ticks` keeps them."""
        return {
            scope: (gate.closed_at, gate.opened_at, gate.error_class, gate.probes, _as_row(gate.probe), gate.next_probe, gate.floor)
            for scope, gate in self._gates.items()
        }

    def announcements(self) -> list[tuple[str, str]]:
        """What there is to tell about gates that have changed: scope, and its state as JSON."""
        return [(scope, _announcement(scope, self._gates[scope])) for scope in sorted(self.untold) if scope in self._gates]


def _probe(row: Row) -> Probe:
    return Probe(*(row[name] for name in ("delivery_id", "due_at", "sent_at", "consumer_group", "topic", "partition", "offset")))


def _as_row(probe: Probe | None) -> tuple[object, ...] | None:
    return None if probe is None else dataclasses.astuple(probe)


def _age(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in _AGE)


def _parts(scope: str) -> tuple[str, str, str]:
    """Group, topic and partition of a scope; the group and the partition may be empty."""
    group, _, topic = scope.rpartition(":")
    topic, _, partition = topic.partition("/")
    return group, topic, partition


def _announcement(scope: str, gate: Gate) -> str:
    group, topic, partition = _parts(scope)
    said = {
        "scope": scope,
        "consumer_group": group or None,
        "topic": topic,
        "partition": int(partition) if partition else None,
        "state": "closed" if gate.opened_at is None else "open",
        "since": gate.closed_at.isoformat(timespec="milliseconds"),
        "opened_at": gate.opened_at and gate.opened_at.isoformat(timespec="milliseconds"),
        "error_class": gate.error_class,
        "probes": gate.probes,
    }
    return json.dumps({name: value for name, value in said.items() if value is not None})
