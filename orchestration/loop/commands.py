"""Operators' commands: what complete lists ask for, written as one event for each message, at the pace that was asked for.

What a command says is read in SQL (`operator_commands`, `commanded_deliveries`), and so is what it does to a message: SQL decides
about each event. Here is what time does to it: when it starts, how much goes at once, and what holds it up. How much of a list was issued
is in the state, that is in `ticks`, and the events say it themselves: whoever goes on after a crash issues nothing twice and skips nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from orchestration.logs import event
from orchestration.loop.canaries import canaries_of, has_succeeded
from orchestration.loop.command_orders import Orders
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers
from orchestration.loop.issued import IssuedCommands
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected

log = logging.getLogger(__name__)

# At most so much of the time since the last issue counts: a loop that was away makes no flood.
_LONGEST_ISSUE = timedelta(seconds=10)

# Each is looked up in the wheel, and goes through dbt: with 50,000 at once (2.5 kB each, beside a million dead letters) the Spark
# process ended in its first decide run, with the 3 GB that it has. 10,000 are as quick, a row, as 20,000.
ISSUED_AT_ONCE = 10_000

# So much of a list is held in memory at a time: to read it costs a pass over the whole list.
_PAGE = 50_000

# How often canaries are looked at.
_CANARY_LOOK = timedelta(seconds=2)

# How long without a report a canary counts as successful, unless the command says otherwise.
ASSUME_AFTER = timedelta(minutes=5)


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
    """All commands that a loop has to execute.

    issued: how much of each was issued, in the step that runs: taken from the state when it begins, given back in its result.

    most: how many messages of all commands are issued in one tick at most. Much of a decide run is fixed cost, so that many small ones take
    longer; larger ones let the retries of others wait, and need memory.
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
    rest: bool = False
    """Whether there is more that may be issued at once."""
    undecided: int = 0
    """How many events were written since somebody set this to 0: also where the next could not be."""

    @property
    def orders(self) -> Orders:
        """What makes the events."""
        return Orders(self.spark, self.schema)

    @property
    def waiting(self) -> int:
        """How many messages are still to be issued, and will be without anybody doing something."""
        return sum(each.listed - self.issued.of(each.command) for each in self._open.values() if not each.paused and not each.held)

    def progress(self, now: datetime) -> dict[tuple[str, ...], tuple[int, int]]:
        """Of the commands that are at work, by what they want and their state: how many messages they list, and how many are issued."""
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for each in self._open.values():
            issued = self.issued.of(each.command)
            labels = (each.what, each.state(issued, now))
            listed_before, issued_before = found.get(labels, (0, 0))
            found[labels] = listed_before + each.listed, issued_before + issued
        return found

    def execute(self, now: datetime, *, came: bool) -> None:
        """Issues what is to be issued now. came: whether records came since the last time.

        What it asks of messages that wait is looked up in `ready`: nothing may be sent before the next decide run. Raises AppendError.
        """
        if came or self._read_upto is None:
            self._read()
        self.rest = False
        running = [each for each in self._open.values() if each.state(self.issued.of(each.command), now) == "running"]
        for each in running:
            self._issue(each, now, max(1, self.most // len(running)))
        self._forget()

    # ---------- which there are

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
            # the rest may be under way
            self._incomplete[command] = row["first_batch"]
            return
        self._incomplete.pop(command, None)
        if row["closed_batch"] < since or command in self._executed:
            # something that was added to it later
            return
        self._executed.add(command)
        if row["status"] != "complete":
            event(log, logging.WARNING, "command_rejected", command=command, reason=row["problem"])
            self._finished[command] = row["closed_batch"]
        elif row["of_command"] is not None:
            self._control(row["what"], row["of_command"], row["who"])
            self._finished[command] = row["closed_batch"]
        elif self.issued.of(command) >= row["listed"]:
            self._finished[command] = row["closed_batch"]
        else:
            event(
                log, logging.INFO, "command_accepted",
                command=command, what=row["what"], messages=row["listed"], who=row["who"], reason=row["reason"],
            )  # fmt: skip
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
            passed=canary is not None and self.issued.of(row["command"]) > canary,
        )

    def _control(self, what: str, of: str, who: str) -> None:
        each = self._open.get(of)
        if each is None:
            event(log, logging.WARNING, "command_control_ignored", command=of, what=what, who=who, reason="the command is not running")
            return
        event(log, logging.INFO, "command_control_applied", command=of, what=what, who=who)
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

    def _forget(self) -> None:
        """Moves on to the first command that may be open; what came before, and ended, need not be remembered."""
        first = min([*(each.first_batch for each in self._open.values()), *self._incomplete.values()], default=(self._read_upto or 0) + 1)
        self.issued = replace(self.issued, since=first)
        for command, batch in list(self._finished.items()):
            if batch < first:
                del self._finished[command]
                self._executed.discard(command)
                self.issued = self.issued.without(command)

    # ---------- what they ask for

    def _issue(self, each: _Open, now: datetime, most: int) -> None:
        """Writes the next events of a command."""
        done = self.issued.of(each.command)
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
        orders = self.orders.of(each.command, each.what, each.destination, chosen, self.ledgers.next_batch, now)
        self.ledgers.append("events", orders, now)
        self.issued = self.issued.with_issued(each.command, done + len(chosen))
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

    # ---------- canaries

    def look(self, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        """Sees what became of canaries. now: a moment from which on reports were taken in; complete: of which topics all that there were
        have been, and are decided.

        A canary has succeeded when its group has committed an offset beyond it; where the group commits none, when no report came in the
        time that the command says. One that failed again, or may go nowhere, holds the rest up until somebody resumes the command.
        """
        for each in self._open.values():
            waits = each.canary is not None and not each.passed and each.held is None and self.issued.of(each.command) >= each.canary
            if waits and (each.looked_at is None or each.looked_at + _CANARY_LOOK <= now):
                each.looked_at = now
                self._judge(each, consumers, now, complete=complete)

    def _judge(self, each: _Open, consumers: Consumers, now: datetime, *, complete: Completeness) -> None:
        canaries = canaries_of(self.spark, self.schema, each.command, each.closed_batch, each.canary or 0)
        failed = [row["message_id"] for row in canaries if row["has_failed"]]
        if failed:
            each.held = f"{len(failed)} of {each.canary} canaries failed: {failed[0]}"
            event(
                log, logging.WARNING, "command_held",
                command=each.command, reason=each.held, hint="`resume` sends the rest all the same, `stop` ends the command",
            )  # fmt: skip
        elif len(canaries) == each.canary and all(
            has_succeeded(row, each.assume_after, consumers, now, complete=complete) for row in canaries
        ):
            each.passed = True
            event(log, logging.INFO, "canaries_succeeded", command=each.command, canaries=each.canary)
