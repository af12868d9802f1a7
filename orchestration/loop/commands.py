"""Operators' commands: what complete lists ask for, written as one event for each message, at the pace that was asked for.

What a command says is read in SQL (`operator_commands`, `commanded_deliveries`), and so is what it does to a message: the fold decides
about each event. Here is what time does to it: when it starts, how much goes at once, and what holds it up. How much of a list was issued
is among the positions in `ticks`, and the events say it themselves: whoever goes on after a crash issues nothing twice and skips nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected
from orchestration.tables.synthetic_events import COORDINATES, command_order

log = logging.getLogger(__name__)

# At most so much of the time since the last issue counts: a loop that was away makes no flood.
_LONGEST_ISSUE = timedelta(seconds=10)

# Each is looked up in the wheel, and goes through the fold: with 50,000 at once (2.5 kB each, beside a million dead letters) the Spark
# process ended in its first fold, with the 3 GB that it has. 10,000 are as quick, a row, as 20,000.
ISSUED_AT_ONCE = 10_000

# So much of a list is held in memory at a time: to read it costs a pass over the whole list.
_PAGE = 50_000

# How often canaries are looked at.
_CANARY_LOOK = timedelta(seconds=2)

# How long without a report a canary counts as successful, unless the command says otherwise.
ASSUME_AFTER = timedelta(minutes=5)

# Where the first open command may have come in, and how much of each was issued, among the positions.
_SINCE = "commands"
_ISSUED = "command:"

_WAITING_KINDS = ("send_now", "cancel")


def issued_key(command: str) -> str:
    """How the positions name what was issued of a command."""
    return f"{_ISSUED}{command}"


@dataclass
class _Open:
    """A command of whose list not everything was issued yet.

    canary: so many first; the rest when they have succeeded (passed), or when somebody says so. credit: how many may be issued, of what
    the rate has earned. page: what is held of the list, from the place page_from on.
    """

    command: str
    what: str
    listed: int
    first_batch: int
    closed_batch: int
    destination: str | None
    rate: float | None
    start_at: datetime | None
    canary: int | None
    assume_after: timedelta
    paused: bool = False
    passed: bool = False
    held: str | None = None
    credit: float = 0.0
    credited_at: datetime | None = None
    looked_at: datetime | None = None
    page: list[tuple[str, datetime, int]] = field(default_factory=list)
    page_from: int = 0

    def state(self, issued: int, now: datetime) -> str:
        """How far it is, in the words of the mart `redrives`."""
        if self.paused:
            return "paused"
        if self.start_at is not None and self.start_at > now:
            return "waiting"
        return "canary" if issued == self.canary and not self.passed else "running"

    def earn(self, now: datetime, most: int) -> int:
        """How many may be issued now; `most` at once."""
        if self.rate is None:
            return most
        elapsed = min(now - (self.credited_at or now), _LONGEST_ISSUE).total_seconds()
        longest = max(1.0, self.rate * _LONGEST_ISSUE.total_seconds())
        self.credit = min(self.credit + self.rate * elapsed, longest)
        self.credited_at = now
        return min(int(self.credit), most)


@dataclass
class Commands:
    """All commands that a loop has to obey. positions: those of the loop, which are kept in `ticks`.

    most: how many messages of all commands are issued in one tick at most. Much of a fold is fixed cost, so that many small ones take
    longer; larger ones let the retries of others wait, and need memory.
    """

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    positions: dict[str, int]
    most: int
    _open: dict[str, _Open] = field(default_factory=dict)
    _incomplete: dict[str, int] = field(default_factory=dict)
    _finished: dict[str, int] = field(default_factory=dict)
    _obeyed: set[str] = field(default_factory=set)
    _read_upto: int | None = None
    rest: bool = False
    """Whether there is more that may be issued at once."""
    undecided: int = 0
    """How many events were written since somebody set this to 0: also where the next could not be."""

    @property
    def waiting(self) -> int:
        """How many messages are still to be issued, and will be without anybody doing something."""
        return sum(each.listed - self._issued(each.command) for each in self._open.values() if not each.paused and not each.held)

    def progress(self, now: datetime) -> dict[tuple[str, ...], tuple[int, int]]:
        """Of the commands that are at work, by what they want and their state: how many messages they list, and how many are issued."""
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for each in self._open.values():
            issued = self._issued(each.command)
            labels = (each.what, each.state(issued, now))
            listed_before, issued_before = found.get(labels, (0, 0))
            found[labels] = listed_before + each.listed, issued_before + issued
        return found

    def obey(self, now: datetime, *, came: bool) -> None:
        """Issues what is to be issued now. came: whether records came since the last time.

        What it asks of messages that wait is looked up in `ready`: nothing may be sent before the next fold. Raises AppendError.
        """
        if came or self._read_upto is None:
            self._read()
        self.rest = False
        running = [each for each in self._open.values() if each.state(self._issued(each.command), now) == "running"]
        for each in running:
            self._issue(each, now, max(1, self.most // len(running)))
        self._forget()

    # ---------- which there are

    def _read(self) -> None:
        """Reads the commands that came in since the last time; after a start, all that may be open."""
        upto = self.ledgers.batch
        since = self.positions.get(_SINCE, 0) if self._read_upto is None else self._read_upto + 1
        came = self.spark.sql(
            f"""
            select distinct command from {self.schema}.events
            where batch >= {since:d} and batch <= {upto:d} and kind = 'command' and command is not null
            """
        ).collect()
        if came:
            commands = self.spark.table(f"{self.schema}.operator_commands").where(F.col("command").isin(*(row["command"] for row in came)))
            for row in collected(commands.orderBy("closed_batch", "partition", "offset")):
                self._take_up(row, since)
        self._read_upto = upto

    def _take_up(self, row: Row, since: int) -> None:
        command = row["command"]
        if row["status"] == "incomplete":
            # the rest may be under way
            self._incomplete[command] = row["first_batch"]
            return
        self._incomplete.pop(command, None)
        if row["closed_batch"] < since or command in self._obeyed:
            # something that was added to it later
            return
        self._obeyed.add(command)
        if row["status"] != "complete":
            log.warning("command %s does nothing: %s", command, row["problem"])
            self._finished[command] = row["closed_batch"]
        elif row["of_command"] is not None:
            self._control(row["what"], row["of_command"], row["who"])
            self._finished[command] = row["closed_batch"]
        elif self._issued(command) >= row["listed"]:
            self._finished[command] = row["closed_batch"]
        else:
            log.info("command %s: %s of %d messages by %s: %s", command, row["what"], row["listed"], row["who"], row["reason"])
            self._open[command] = self._opened(row)

    def _opened(self, row: Row) -> _Open:
        canary = row["canary"] if row["what"] == "redrive" else None
        return _Open(
            command=row["command"],
            what=row["what"],
            listed=row["listed"],
            first_batch=row["first_batch"],
            closed_batch=row["closed_batch"],
            destination=row["destination"],
            rate=row["rate_per_second"],
            start_at=row["start_at"],
            canary=canary,
            assume_after=ASSUME_AFTER if row["assume_after_ms"] is None else timedelta(milliseconds=row["assume_after_ms"]),
            passed=canary is not None and self._issued(row["command"]) > canary,
        )

    def _control(self, what: str, of: str, who: str) -> None:
        each = self._open.get(of)
        if each is None:
            log.warning("%s of command %s by %s changes nothing: it is not at work", what, of, who)
            return
        log.info("command %s: %s by %s", of, what, who)
        if what == "stop":
            self._finish(each)
        elif what == "resume" and not each.paused:
            # it was not paused: the canaries held it up
            each.passed, each.held = True, None
        else:
            each.paused = what == "pause"
            each.credited_at = None

    def _finish(self, each: _Open) -> None:
        del self._open[each.command]
        self._finished[each.command] = each.closed_batch

    def _issued(self, command: str) -> int:
        return self.positions.get(issued_key(command), 0)

    def _forget(self) -> None:
        """Moves on to the first command that may be open; what came before, and ended, need not be remembered."""
        first = min([*(each.first_batch for each in self._open.values()), *self._incomplete.values()], default=(self._read_upto or 0) + 1)
        self.positions[_SINCE] = first
        for command, batch in list(self._finished.items()):
            if batch < first:
                del self._finished[command]
                self._obeyed.discard(command)
                self.positions.pop(issued_key(command), None)

    # ---------- what they ask for

    def _issue(self, each: _Open, now: datetime, most: int) -> None:
        """Writes the next events of a command."""
        done = self._issued(each.command)
        end = each.canary if each.canary is not None and not each.passed else each.listed
        some = min(each.earn(now, most), end - done)
        if some > 0:
            some = self._append(each, done, some, now)
            each.credit -= some if each.rate is not None else 0
            done += some
        if done >= each.listed:
            self._finish(each)
        elif each.rate is None and done < end:
            self.rest = True

    def _append(self, each: _Open, done: int, some: int, now: datetime) -> int:
        """Writes the events of the next places, some at most; returns how many."""
        chosen = self._next(each, done)[:some]
        batch = self.ledgers.next_batch
        rows = [(*command_order(batch, place), delivery_id, due_at) for delivery_id, due_at, place in chosen]
        orders = self.spark.createDataFrame(rows, f"{COORDINATES}, delivery_id string, due_at timestamp")
        if each.what in _WAITING_KINDS:
            orders = self._looked_up(each.what, orders, [due for _, due, _ in chosen], now)
        else:
            orders = orders.withColumns({"kind": F.lit(each.what), "detail": F.lit(None).cast("string")})
        if each.what == "redrive":
            orders = self._told_again(orders.withColumn("detail", F.lit(each.destination).cast("string")), [due for _, due, _ in chosen])
        self.ledgers.append("events", orders.withColumn("command", F.lit(each.command)), now)
        self.positions[issued_key(each.command)] = done + len(chosen)
        self.undecided += len(chosen)
        return len(chosen)

    def _next(self, each: _Open, done: int) -> list[tuple[str, datetime, int]]:
        """Deliveries of a list from a place on, each with when it was due and its place: as many as are held, at least one."""
        held = each.page[done - each.page_from :]
        if held:
            return held
        listed = self.spark.table(f"{self.schema}.commanded_deliveries")
        page = listed.where((F.col("command") == each.command) & F.col("place").between(done, done + _PAGE - 1)).orderBy("place")
        each.page = [(row["delivery_id"], row["due_at"], row["place"]) for row in collected(page)]
        each.page_from = done
        return each.page

    def _looked_up(self, what: str, orders: DataFrame, dues: list[datetime], now: datetime) -> DataFrame:
        """The orders, each with the word whether its delivery still waits: nobody must send again what may have been sent."""
        first, last = F.lit(min(dues)), F.lit(max(dues))
        in_time = F.col("due_at").between(first, last)
        in_slot = F.col("due_hour").between(F.date_trunc("hour", first), F.date_trunc("hour", last))
        ready = self.spark.table(f"{self.schema}.ready").where(in_time & in_slot)
        waits = ready.where(F.col("not_before").isNull() | (F.col("not_before") <= F.lit(now))).select("delivery_id", "due_at")
        if what == "cancel":
            held = self.spark.table(f"{self.schema}.held_deliveries").where(in_time & in_slot)
            waits = waits.unionByName(held.select("delivery_id", "due_at"))
        found = waits.distinct().withColumn("waits", F.lit(True))
        detail = F.when(F.col("waits").isNull(), "not_waiting")
        return orders.join(found, ["delivery_id", "due_at"], "left").withColumns({"kind": F.lit(what), "detail": detail}).drop("waits")

    def _told_again(self, orders: DataFrame, dues: list[datetime]) -> DataFrame:
        """The orders; of messages that were refused, the report itself, to be decided like the first time: as long as it is there."""
        names = ["delivery_id", "due_at"]
        refusals = collected(
            self.spark.table(f"{self.schema}.deliveries")
            .where(F.col("due_at").between(F.lit(min(dues)), F.lit(max(dues))) & (F.col("decision") == "refused"))
            .join(F.broadcast(orders.where("coalesce(detail, 'retry') = 'retry'").select(*names)), names)
            .join(self.spark.table(f"{self.schema}.purges").withColumnRenamed("life", "purged_life"), "message_id", "left")
            .where("purged_life is null or life > purged_life")
            .select(*names, "cause", "batch")
            .distinct()
        )
        if not refusals:
            return orders
        batches = [row["batch"] for row in refusals]
        causes = self.spark.createDataFrame([row[:3] for row in refusals], "delivery_id string, due_at timestamp, cause string")
        told = ("source", "topic", "key", "value", "headers", "record_timestamp", "stamped_by_broker")
        reports = (
            self.spark.table(f"{self.schema}.events")
            .where(F.col("batch").between(min(batches), max(batches)) & (F.col("kind") == "report"))
            # maintenance has removed what was purged
            .where("key is not null or value is not null or headers is not null")
            .select(F.concat_ws("/", "topic_id", "partition", "offset", "index").alias("cause"), *told)
            .join(F.broadcast(causes), "cause")
        )
        again = F.col("cause").isNotNull()
        return (
            orders.join(reports, names, "left")
            .withColumns({"kind": F.when(again, "report").otherwise(F.col("kind")), "detail": F.coalesce("cause", "detail")})
            .drop("cause")
        )

    # ---------- canaries

    def look(self, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Sees what became of canaries. now: a moment from which on reports were taken in; complete: of which topics all that there were
        have been, and are decided.

        A canary has succeeded when its group has committed an offset beyond it; where the group commits none, when no report came in the
        time that the command says. One that failed again, or may go nowhere, holds the rest up until somebody resumes the command.
        """
        for each in self._open.values():
            waits = each.canary is not None and not each.passed and each.held is None and self._issued(each.command) >= each.canary
            if waits and (each.looked_at is None or each.looked_at + _CANARY_LOOK <= now):
                each.looked_at = now
                self._judge(each, consumers, now, complete=complete)

    def _judge(self, each: _Open, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        canaries = self._canaries(each)
        failed = [row["message_id"] for row in canaries if row["has_failed"]]
        if failed:
            each.held = f"{len(failed)} of {each.canary} canaries failed: {failed[0]}"
            log.warning("command %s is held up: %s. `resume` sends the rest all the same, `stop` ends it", each.command, each.held)
        elif len(canaries) == each.canary and all(_succeeded(row, each, consumers, now, complete=complete) for row in canaries):
            each.passed = True
            log.info("command %s: %d canaries have succeeded, the rest follows", each.command, each.canary)

    def _canaries(self, each: _Open) -> list[Row]:
        """What became of the canaries of a command that are decided. One that was on its way already says nothing."""
        rows = self.spark.sql(
            f"""
            with

            orders as (
                select concat_ws('/', topic_id, partition, offset, index) as cause from {self.schema}.events
                where batch >= {each.closed_batch:d} and command = '{each.command}' and kind <> 'command' and index < {each.canary:d}
            ),

            redriven as (
                select distinct cause, batch, decision, message_id, life, original_topic
                from {self.schema}.deliveries left semi join orders using (cause)
                where batch >= {each.closed_batch:d}
            ),

            failed as (
                select message_id, life, max(batch) as batch from {self.schema}.deliveries
                where
                    batch >= {each.closed_batch:d} and decision <> 'duplicate'
                    and (report_topic is not null or decision in ('dead_letter', 'parked', 'cancelled'))
                group by message_id, life
            ),

            sent as (
                select message_id, max_by(struct(consumer_group, topic, partition, offset, sent_at), batch) as sent
                from {self.schema}.publish_results
                where batch >= {each.closed_batch:d} and outcome = 'delivered' and kind <> 'dead_letter'
                group by message_id
            ),

            -- not the view of this name: it reads all of `ticks`, which grows for ever, and is asked every other second here
            settled_offsets as (
                select
                    settled.consumer_group,
                    settled.topic,
                    settled.partition,
                    max_by(settled.offset, batch) as offset,
                    max(recorded_at) as settled_at
                from (select batch, recorded_at, explode(settled) as settled from {self.schema}.ticks where batch >= {each.closed_batch:d})
                group by settled.consumer_group, settled.topic, settled.partition
            )

            select
                redriven.message_id,
                redriven.decision,
                redriven.original_topic,
                redriven.decision not in ('redrive', 'retry', 'duplicate') or failed.message_id is not null as has_failed,
                sent.sent,
                coalesce(settled.offset > sent.sent.offset and settled.settled_at >= sent.sent.sent_at, false) as has_settled
            from redriven
            left join failed
                on redriven.message_id = failed.message_id and redriven.life = failed.life and redriven.batch < failed.batch
            left join sent on redriven.message_id = sent.message_id
            left join settled_offsets as settled
                on sent.sent.consumer_group = settled.consumer_group
                    and sent.sent.topic = settled.topic
                    and sent.sent.partition = settled.partition
            """
        )
        return collected(rows)


def _succeeded(canary: Row, each: _Open, consumers: Consumers, now: datetime, *, complete: Completeness) -> bool:
    if canary["decision"] == "duplicate" or canary["has_settled"]:
        return True
    sent = canary["sent"]
    if sent is None or not complete.of([canary["original_topic"]]):
        return False
    sent_at = sent["sent_at"]
    place = None if sent["consumer_group"] is None else Place(sent["consumer_group"], sent["topic"], sent["partition"])
    return sent_at + each.assume_after <= now and (place is None or consumers.is_silent(place, sent_at))


def issued_in(rows: list[Row]) -> Mapping[str, int]:
    """What was issued of each command, as positions: from rows of command and the number of the next."""
    return {issued_key(row["command"]): int(row["next"]) for row in rows}
