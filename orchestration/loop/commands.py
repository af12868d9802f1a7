"""Operators' commands: one event for each message that a complete command lists, at the rate of the command.

SQL reads what a command says (`operator_commands`, `commanded_deliveries`), and decides about each event. This module does what depends on
time: when a command starts, how many messages it issues at once, when each of them is due, and what holds it up. How much of each list is
issued is kept in `ticks`, and can be counted in the events: after a crash, nothing is issued twice or skipped.

A command with a rate issues ahead of time, and each order says when its message is due: consumers get messages at that rate, not in bursts
as long as a tick.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from orchestration.logs import event
from orchestration.loop.canaries import canaries_of, had_failed, has_succeeded
from orchestration.loop.command_orders import Orders
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers
from orchestration.loop.issued import ISSUED_AHEAD, IssuedCommands
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected

log = logging.getLogger(__name__)

# With a rate, a message is due at least this long after its order is issued, so that the order is decided by then.
_LEAD = timedelta(seconds=10)

# The most orders in one tick. A decide run of 25,000 takes some 6 s, of which a third does not depend on their number; other retries wait
# for it. Beside a million dead letters with stack traces of 2 kB it fits into 2 GB of memory for Spark.
ISSUED_AT_ONCE = 25_000

# How many rows of a list are held in memory. Each page costs a pass over the whole list.
_PAGE = 50_000

# How often the outcome of canaries is read.
_CANARY_LOOK = timedelta(seconds=2)

# A canary whose group commits no offsets counts as successful after this time without a report, unless the command sets another time.
ASSUME_AFTER = timedelta(minutes=5)


@dataclass
class _Open:
    """A command whose list is not issued completely.

    first_batch, closed_batch: the batches of the command's first record, and of the one that completes it; its orders come later. canary:
    how many messages are sent first; the rest follows when these have succeeded (passed), or when an operator resumes the command. held:
    why the canaries hold the rest up. next_due: when the next message is due by the rate, at the earliest. page: the part of the list that
    is in memory, from place page_from on.
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
    next_due: datetime | None = None
    looked_at: datetime | None = None
    page: list[tuple[str, datetime, int]] = field(default_factory=list)
    page_from: int = 0

    def state(self, issued: int, now: datetime) -> str:
        """The state of the command, in the words of the mart `redrives`."""
        if self.paused:
            return "paused"
        if self.start_at is not None and self.start_at > now:
            return "waiting"
        return "canary" if self.awaits_canaries(issued) else "running"

    def awaits_canaries(self, issued: int) -> bool:
        """Whether all canaries are issued, and the rest waits for them."""
        return issued == self.canary and not self.passed

    def wants(self, now: datetime, most: int) -> int:
        """How many messages may be issued now, at most `most`. With a rate: those that are due within ISSUED_AHEAD."""
        if self.rate is None:
            return most
        ahead = now + ISSUED_AHEAD - self._first_due(now)
        return min(most, int(ahead.total_seconds() * self.rate) + 1) if ahead >= timedelta() else 0

    def due_times(self, now: datetime, count: int) -> list[datetime] | None:
        """The due times of the next messages; None if the command has no rate, and so no due times.

        A loop that was stopped, or is behind, does not exceed the rate to catch up.
        """
        if self.rate is None:
            return None
        first = self._first_due(now)
        return [first + timedelta(seconds=place / self.rate) for place in range(count)]

    def _first_due(self, now: datetime) -> datetime:
        return max(self.next_due or now, now + _LEAD)


@dataclass
class Commands:
    """All commands that a loop has to execute.

    issued: how much of each command is issued. The step that runs takes it from the state when it begins, and returns it in its result.

    most: how many messages all commands together issue in one tick. Much of the cost of a decide run is fixed, so many small runs take
    longer; large ones delay all other retries, and need memory.
    """

    spark: SparkSession
    schema: str
    ledgers: Ledgers
    issued: IssuedCommands
    most: int
    _open: dict[str, _Open] = field(default_factory=dict)
    _incomplete: dict[str, int] = field(default_factory=dict)
    _finished: dict[str, int] = field(default_factory=dict)
    _executed: set[str] = field(default_factory=set)
    _read_upto: int | None = None
    has_more: bool = False
    """Whether more could be issued at once, without waiting for a rate, a canary or an operator."""
    undecided: int = 0
    """How many events were appended since this was set to 0, also if a later append has failed."""
    withdraw: Callable[[Collection[str]], None] = lambda ids: None
    """Takes these deliveries back from the timed lane: none may be sent between the check whether it waits and the decision about it."""

    @property
    def orders(self) -> Orders:
        """Makes the events."""
        return Orders(self.spark, self.schema)

    @property
    def waiting(self) -> int:
        """How many messages are still to be issued, without those of commands that are paused or held and wait for an operator."""
        return sum(each.listed - self.issued.of(each.command) for each in self._open.values() if not each.paused and not each.held)

    def progress(self, now: datetime) -> dict[tuple[str, ...], tuple[int, int]]:
        """How many messages the unfinished commands list, and how many are issued, by what the commands want and their state."""
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for each in self._open.values():
            issued = self.issued.of(each.command)
            labels = (each.what, each.state(issued, now))
            listed_before, issued_before = found.get(labels, (0, 0))
            found[labels] = listed_before + each.listed, issued_before + issued
        return found

    def execute(self, now: datetime, *, came: bool) -> None:
        """Issues what is to be issued now. came: whether records of commands came since the last call.

        For `send_now` and `cancel` it reads `ready`: the caller may not send these deliveries before the orders are decided. Raises
        AppendError.
        """
        if came or self._read_upto is None:
            self._read()
        self.has_more = False
        running = [each for each in self._open.values() if each.state(self.issued.of(each.command), now) == "running"]
        # those that may issue least come first, and leave the others what they don't need
        left = self.most
        for number, each in enumerate(sorted(running, key=lambda each: each.wants(now, self.most))):
            left -= self._issue(each, now, max(1, left // (len(running) - number)))
        self._forget()

    # ---------- reading commands

    def _read(self) -> None:
        """Reads the commands that came in since the last time; after a start, all that may be open."""
        upto = self.ledgers.batch
        since = self.issued.since if self._read_upto is None else self._read_upto + 1
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
            # its other records may still come
            self._incomplete[command] = row["first_batch"]
            return
        self._incomplete.pop(command, None)
        if row["closed_batch"] < since or command in self._executed:
            # a record that came after the command was taken up
            return
        if row["status"] != "complete":
            event(log, logging.WARNING, "command_rejected", command=command, reason=row["problem"])
            self._finished[command] = row["closed_batch"]
        elif row["of_command"] is not None:
            self._control(row["what"], row["of_command"], row["who"], row["closed_batch"])
            self._finished[command] = row["closed_batch"]
        elif self.issued.of(command) >= row["listed"]:
            self._finished[command] = row["closed_batch"]
        else:
            self._open[command] = self._opened(row)
            event(
                log, logging.INFO, "command_accepted",
                command=command, what=row["what"], messages=row["listed"], who=row["who"], reason=row["reason"],
            )  # fmt: skip
        # last: a command whose query has failed is taken up when it is read again
        self._executed.add(command)

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
            passed=canary is not None and self.issued.of(row["command"]) > canary,
            next_due=self._next_due(row) if row["rate_per_second"] and self.issued.of(row["command"]) else None,
        )

    def _next_due(self, row: Row) -> datetime | None:
        """When the next message of a command is due by its rate, after what an earlier loop has issued."""
        issued = self.spark.table(f"{self.schema}.events").where(
            (F.col("batch") >= row["closed_batch"]) & (F.col("command") == row["command"]) & (F.col("kind") != "command")
        )
        (last,) = collected(issued.select(F.max("record_timestamp").alias("due_at")))
        # null: issued by a version that gave no due times
        due_at: datetime | None = last["due_at"]
        return due_at and due_at + timedelta(seconds=1 / row["rate_per_second"])

    def _control(self, what: str, of: str, who: str, batch: int) -> None:
        """Carries out a command about another one, which came in in this batch."""
        each = self._open.get(of)
        if each is None:
            event(log, logging.WARNING, "command_control_ignored", command=of, what=what, who=who, reason="the command is not running")
            return
        event(log, logging.INFO, "command_control_applied", command=of, what=what, who=who)
        if what == "stop":
            self._finish(each)
        elif what == "resume" and not each.paused and self._was_held(each, batch):
            each.passed, each.held = True, None
        else:
            # of a command that is neither paused nor held, a `resume` changes nothing: its canaries are still judged
            each.paused = what == "pause"

    def _finish(self, each: _Open) -> None:
        del self._open[each.command]
        self._finished[each.command] = each.closed_batch

    def _forget(self) -> None:
        """Sets `issued.since` to the first batch of a command that may be open, and forgets the commands that ended before it."""
        first = min([*(each.first_batch for each in self._open.values()), *self._incomplete.values()], default=(self._read_upto or 0) + 1)
        self.issued = replace(self.issued, since=first)
        for command, batch in list(self._finished.items()):
            if batch < first:
                del self._finished[command]
                self._executed.discard(command)
                self.issued = self.issued.without(command)

    # ---------- issuing orders

    def _issue(self, each: _Open, now: datetime, most: int) -> int:
        """Writes the next events of a command, at most `most`; returns how many."""
        done = before = self.issued.of(each.command)
        end = each.canary if each.canary is not None and not each.passed else each.listed
        some = min(each.wants(now, most), end - done)
        if some > 0:
            done += self._append(each, done, some, each.due_times(now, some), now)
        if done >= each.listed:
            self._finish(each)
        elif each.rate is None and done < end:
            self.has_more = True
        return done - before

    def _append(self, each: _Open, done: int, some: int, due_times: list[datetime] | None, now: datetime) -> int:
        """Writes the events of at most `some` further places of the list; returns how many."""
        chosen = self._next(each, done)[:some]
        self.withdraw([delivery_id for delivery_id, _, _ in chosen])
        orders = self.orders.of(each.command, each.what, each.destination, chosen, self.ledgers.next_batch, now, due_times)
        self.ledgers.append("events", orders, now)
        self.issued = self.issued.with_issued(each.command, done + len(chosen))
        self.undecided += len(chosen)
        if due_times and each.rate is not None:
            each.next_due = due_times[len(chosen) - 1] + timedelta(seconds=1 / each.rate)
        return len(chosen)

    def _next(self, each: _Open, done: int) -> list[tuple[str, datetime, int]]:
        """Deliveries of a list from place `done` on, with due time and place: the rest of the page in memory, or the next page."""
        held = each.page[done - each.page_from :]
        if held:
            return held
        listed = self.spark.table(f"{self.schema}.commanded_deliveries")
        page = listed.where((F.col("command") == each.command) & F.col("place").between(done, done + _PAGE - 1)).orderBy("place")
        each.page = [(row["delivery_id"], row["due_at"], row["place"]) for row in collected(page)]
        each.page_from = done
        return each.page

    # ---------- canaries

    def look(self, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Reads the outcome of canaries. now: when the tick began; complete: the topics of which all reports by then are decided.

        A canary has succeeded when its offset is settled, or its message was on its way already (`duplicate`); if its group commits no
        offsets, when no report came within `assume_after`. One that failed again, was cancelled, or whose order was refused holds the rest
        up until an operator resumes the command. One that is still to be sent is waited for.
        """
        for each in self._open.values():
            waits = each.awaits_canaries(self.issued.of(each.command)) and each.held is None
            if waits and (each.looked_at is None or each.looked_at + _CANARY_LOOK <= now):
                each.looked_at = now
                self._judge(each, consumers, now, complete=complete)

    def _was_held(self, each: _Open, batch: int) -> bool:
        """Whether canaries had failed before this batch, by the tables: a loop that reads a `resume` when it starts has judged none yet."""
        if not each.awaits_canaries(self.issued.of(each.command)):
            return False
        return each.held is not None or had_failed(self._canaries(each), each.canary, batch)

    def _canaries(self, each: _Open) -> list[Row]:
        return canaries_of(self.spark, self.schema, each.command, each.closed_batch, each.canary or 0)

    def _judge(self, each: _Open, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        canaries = self._canaries(each)
        failed = [row["message_id"] for row in canaries if row["failed_in"] is not None]
        if failed:
            each.held = f"{len(failed)} of {each.canary} canaries failed, for example {failed[0]}"
            event(
                log, logging.WARNING, "command_held",
                command=each.command, reason=each.held, hint="`resume` sends the rest all the same, `stop` ends the command",
            )  # fmt: skip
        elif all(has_succeeded(row, each.assume_after, consumers, now, complete=complete) for row in canaries):
            each.passed = True
            event(log, logging.INFO, "canaries_succeeded", command=each.command, canaries=each.canary)
