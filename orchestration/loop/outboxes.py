"""Outboxes: their pending rows are taken in as events, and what became of them is written back.

A row is taken once: until it is written back that it was taken, no more rows of its outbox are. How far that is written is kept in
`ticks`, so that a start finds out whether rows of `events` are not written back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.loop import event_rows
from orchestration.loop.direct_sends import PageSent
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.row_states import RowStates
from orchestration.loop.state import LoopState
from orchestration.outbox.patience import NoAnswerError, Patience
from orchestration.outbox.profiles import Outbox
from orchestration.outbox.read_ahead import ReadAhead
from orchestration.outbox.states import Lag, OutboxError, Page, Place, RowState
from orchestration.rules.seeds import Row
from orchestration.settings import Settings
from orchestration.tables.ledgers import Ledgers

if TYPE_CHECKING:
    from orchestration.outbox.database import OutboxTable

log = logging.getLogger(__name__)

# How long the loop waits for a database, in seconds. The call goes on in its thread, and nothing else is asked of that outbox until it has
# ended.
_PATIENCE = 5.0

# How many rows are read at once at least, while the database is slow.
_FEWEST = 100


class NoAnswerInTimeError(OutboxError):
    """The database gave no answer in time."""


class _Marking(NamedTuple):
    """Rows that were sent, which are being marked, and the batch of their results."""

    rows: int
    batch: int


@dataclass
class _Connected:
    """One outbox. is_behind: rows were taken whose states are not written back yet; None: the tables were not asked yet.

    counts_at: when the pending rows are counted next, a monotonic time in seconds. adopted: ids of rows that were taken while rows of
    another relay are; None: the tables were not asked yet. adopted_to: the place up to which they are. kept: of a table without a status,
    ids of rows that were taken and are not deleted: they look pending for as long as they are there; None: the tables were not asked yet.
    most: how many rows are read at once: fewer after the database gave no answer in time. marked: batches of results whose rows were marked
    when they were sent. marking: what `marker` marks meanwhile. ahead: the page after the last one.
    """

    table: OutboxTable
    patience: Patience = field(default_factory=lambda: Patience(_PATIENCE))
    is_behind: bool | None = None
    lag: Lag | None = None
    counts_at: float = 0.0
    adopted: set[str] | None = None
    adopted_to: Place | None = None
    kept: set[str] | None = None
    most: int | None = None
    marked: list[int] = field(default_factory=list)
    marking: _Marking | None = None
    marker: Patience = field(default_factory=lambda: Patience(_PATIENCE))
    ahead: ReadAhead = field(default_factory=lambda: ReadAhead(Patience(_PATIENCE)))


class _Pages:
    """Pages of pending rows. last: the last one that was read.

    following: begins to read the page after one, and returns a function that waits for it. That raises OutboxError.
    """

    def __init__(self, first: Page, following: Callable[[Page], Callable[[], Page | None]]) -> None:
        self.last = first
        self._following = following

    def __iter__(self) -> Iterator[pa.Table]:
        while True:
            waits = self._following(self.last)
            yield self.last.rows
            try:
                page = waits()
            except OutboxError:
                # the next look meets it, too; what was sent is recorded first
                return
            if page is None:
                return
            self.last = page


class Outboxes:
    """The outboxes of the seed, each with its table."""

    def __init__(self, spark: SparkSession, schema: str, settings: Settings, ledgers: Ledgers, rows: Iterable[Row]) -> None:
        self.spark = spark
        self.row_states = RowStates(spark, schema)
        self.settings = settings
        self.ledgers = ledgers
        self._connected: dict[str, _Connected] = {}
        self.written_back: dict[str, int] = {}
        """Rows whose state was written back in this tick, by outbox."""
        self.use(rows)

    def use(self, rows: Iterable[Row]) -> None:
        """Reads these outboxes from now on. One that has not changed keeps its connection."""
        found = {}
        for row in rows:
            # imported where there is an outbox: its libraries take a loop half a second to load
            from orchestration.outbox.database import OutboxTable

            one = Outbox.of(row.values, self.settings.connections)
            before = self._connected.get(one.name)
            if before is not None and before.table.outbox == one:
                found[one.name] = before
            else:
                found[one.name] = _Connected(OutboxTable(one), is_behind=before.is_behind if before and not before.marking else None)
        self._connected = found

    @property
    def names(self) -> list[str]:
        """The names of the outboxes, in the order of the seed."""
        return [*self._connected]

    def position(self, name: str, state: LoopState) -> OutboxPosition:
        """How far the rows of an outbox are written back. Asks the tables, once, whether rows were taken since, or ever."""
        one, position = self._connected[name], state.outboxes.get(name)
        if one.is_behind is None:
            # what was read before may have been sent since, or come after rows that were neither sent nor taken
            one.ahead.forget()
            first = self.row_states.first_batch(name, position.written if position else 0)
            one.is_behind = first is not None
            if position is None and first is not None:
                # the first loop that read this outbox was killed in its first tick
                return OutboxPosition(first - 1, first - 1, adopts=True)
        return position or OutboxPosition(self.ledgers.batch, state.watermark, adopts=True)

    def look_again(self, name: str) -> None:
        """Has the tables asked whether rows were taken, or sent, that are not written back."""
        if name in self._connected:
            self._connected[name].is_behind = None

    @property
    def lags(self) -> dict[str, Lag]:
        """How far behind the outboxes were when that was counted last."""
        return {name: one.lag for name, one in self._connected.items() if one.lag is not None}

    # ---------- intake

    def take(
        self, name: str, position: OutboxPosition, limit: int, until: float, now: datetime, send: Callable[[Iterable[pa.Table]], PageSent]
    ) -> tuple[int, bool, OutboxPosition]:
        """Sends pending rows, or appends them to `events`; returns how many were appended, whether this is all, and the position after it.

        until: a monotonic time in seconds, after which no further page is sent. What was sent is marked meanwhile, also while the next
        pages are sent. Raises OutboxError, AppendError.
        """
        one = self._connected[name]
        if one.marking is None and one.marker.is_busy:
            raise NoAnswerInTimeError("rows that were sent are still being marked")
        adopted = self._adopted(name, one) if position.adopts else set[str]()
        without = adopted if self._ask(one, lambda: one.table.has_status) else adopted | self._kept(name, one, position)
        pages = self._pages(one, limit, until, without, adopts=position.adopts)
        # until it is written back, what is sent or taken looks pending: if something fails, the tables say what it was
        one.is_behind = None
        try:
            sent = send(pages)
            # if it isn't known whether they are appended, the tables are asked
            kept, one.kept, one.adopted = one.kept, None, None
            if sent.left.num_rows:
                self.ledgers.append("events", event_rows.of_outbox(self.spark, name, sent.left, self.ledgers.next_batch), now)
        except BaseException:
            # rows of these pages may have to go first
            one.ahead.forget()
            raise
        one.kept, one.adopted = kept, adopted if position.adopts else None
        if sent.left.num_rows:
            ids = sent.left.column("row_id").to_pylist()
            if kept is not None:
                one.kept = kept.union(ids)
            adopted.update(ids)
        is_marked = self.end_marking(name)
        one.is_behind = sent.left.num_rows > 0 or not is_marked or not self._begins_marking(one, sent, now)
        if one.is_behind or sent.in_doubt:
            one.ahead.forget()
        if position.adopts and not sent.in_doubt:
            one.adopted_to = pages.last.last
            if pages.last.is_all:
                one.adopted = one.adopted_to = None
                position = replace(position, adopts=False)
        return sent.left.num_rows, pages.last.is_all, position

    def _pages(self, one: _Connected, limit: int, until: float, without: set[str], *, adopts: bool) -> _Pages:
        """Pages of pending rows, of which the first is read: as many rows as the database can give in time."""
        most = min(limit, one.most or limit)

        def read(after: Place | None = None) -> Page:
            return one.table.read(most, without, adopts=adopts, most_bytes=self.settings.intake_max_bytes, after=after)

        def following(page: Page) -> Callable[[], Page | None]:
            # what is adopted is not marked meanwhile
            if not adopts:
                one.ahead.begin(page, read)
            return lambda: self._answered(one.ahead.take) if time.monotonic() < until else None

        try:
            first: Page | None = self._answered(one.ahead.take)
            if first is None:
                # what is being marked would be among the first pending rows
                if not self.end_marking(one.table.outbox.name):
                    raise OutboxError("rows that were sent could not be marked")
                first = self._ask(one, partial(read, one.adopted_to))
        except NoAnswerInTimeError:
            one.most = max(_FEWEST, most // 4)
            raise
        one.most = most = min(limit, most * 2)
        return _Pages(first, following)

    def _begins_marking(self, one: _Connected, sent: PageSent, now: datetime) -> bool:
        """Begins to write back which rows were sent. If it returns False, that is done with what the tables say."""
        if not sent.row_ids:
            return True
        if sent.in_doubt:
            # a newer loop may be in charge
            return False
        try:
            one.marker.begin(lambda: one.table.mark(sent.row_ids, now))
        except NoAnswerError:
            return False
        one.marking = _Marking(len(sent.row_ids), sent.batch)
        return True

    def end_marking(self, name: str) -> bool:
        """Waits until what was sent is marked. If it returns False, that is done with what the tables say, which are asked."""
        one = self._connected[name]
        marking, one.marking = one.marking, None
        if marking is None:
            return True
        try:
            self._has_written(name, marking.rows, one.marker.result())
        except (OutboxError, NoAnswerError):
            one.is_behind = None
            return False
        one.marked.append(marking.batch)
        return True

    def _adopted(self, name: str, one: _Connected) -> set[str]:
        """The ids of rows that were taken so far: what is `failed` of them is redrive's. Asks the tables once."""
        if one.adopted is None:
            one.adopted = self.row_states.ids(name)
        return one.adopted

    def _kept(self, name: str, one: _Connected, position: OutboxPosition) -> set[str]:
        """The ids of rows that were taken and are not deleted. Asks the tables once."""
        if one.kept is None:
            # published rows whose deletion is not certain, too: after a crash they may still be there
            one.kept = self.row_states.ids(name, f"max_by(status, struct(batch, place)) <> 'done' or max(batch) > {position.written:d}")
        return one.kept

    def count(self, name: str) -> None:
        """Counts the pending rows for the metrics, if it is time. Raises OutboxError."""
        one = self._connected[name]
        if self.settings.metrics_port and time.monotonic() >= one.counts_at:
            one.counts_at = time.monotonic() + self.settings.metrics_waiting_seconds
            one.lag = self._ask(one, partial(one.table.lag, one.kept or ()))

    def is_written_back(self, name: str) -> bool:
        """Whether the states of all rows that were taken are written back, or are being: as long as they are not, the rows look pending."""
        return not self._connected[name].is_behind

    # ---------- writing back

    def is_being_marked(self, name: str) -> bool:
        """Whether sent rows are being marked, and the next page is to be sent: then nothing else is written back. Else waits for it."""
        one = self._connected[name]
        if one.marking is not None and one.marker.is_busy and one.ahead.has_begun:
            return True
        self.end_marking(name)
        # what did not answer in time may still be written, over what is written now
        return one.marker.is_busy

    def write_back(self, name: str, position: OutboxPosition, written: int, decided: int, now: datetime) -> tuple[int, OutboxPosition]:
        """Writes back what became of rows: by events and results up to the batch `written`, by decisions up to `decided`.

        Returns how many, and the position after it. Raises OutboxError.
        """
        one = self._connected[name]
        states = [] if self._is_all_marked(position, decided) else self.row_states.since(name, position, written, decided, one.marked)
        if states:
            self._write(name, one, states, now)
        if one.is_behind:
            # if the tables are to be asked, they still are: a result may be read back that was not there yet
            one.is_behind = False
        one.marked = [batch for batch in one.marked if batch > written]
        if one.kept is not None:
            one.kept -= {state.row_id for state in states if state.status == "done"}
        return len(states), replace(position, written=written, decided=decided)

    def _is_all_marked(self, position: OutboxPosition, decided: int) -> bool:
        """Whether nothing has happened since but sends whose rows are marked: then the tables need not be asked."""
        sent = self.ledgers.batches_after("publish_results", position.written)
        if sent is None or decided > position.decided or self.ledgers.end_of("events") > position.written:
            return False
        return {batch for one in self._connected.values() for batch in one.marked}.issuperset(sent)

    def _write(self, name: str, one: _Connected, states: list[RowState], now: datetime) -> None:
        # each part with its own time limit, so that many states are not written in vain
        missing = sum(self._ask(one, partial(one.table.write, part, now)) for part in one.table.parts(states))
        self._has_written(name, len(states), missing)

    def _has_written(self, name: str, rows: int, missing: int) -> None:
        if missing:
            event(log, logging.INFO, "outbox_rows_gone", outbox=name, rows=missing)
        self.written_back[name] = self.written_back.get(name, 0) + rows

    @classmethod
    def _ask(cls, one: _Connected, function: Any) -> Any:
        return cls._answered(partial(one.patience.call, function))

    @staticmethod
    def _answered(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except NoAnswerError:
            raise NoAnswerInTimeError(f"the database gives no answer within {_PATIENCE:g} s") from None
