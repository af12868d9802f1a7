"""The steps of outboxes: takes their pending rows in as events, and writes back what became of them.

A row is taken once: until it is written back that it was taken, no more rows of its outbox are. How far that is written is kept in
`ticks`, so that a start finds out whether rows of `events` are not written back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.loop import event_rows
from orchestration.loop.health import LEDGERS, Health, Reason, outbox
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.outbox.patience import NoAnswerError, Patience
from orchestration.outbox.profiles import Outbox
from orchestration.outbox.states import Lag, OutboxError, RowState
from orchestration.rules.seeds import Row
from orchestration.settings import Settings
from orchestration.tables.ledgers import Ledgers
from orchestration.tables.rows import collected

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


@dataclass
class _Connected:
    """One outbox. is_behind: rows were taken whose states are not written back yet; None: the tables were not asked yet.

    counts_at: when the pending rows are counted next, a monotonic time in seconds. adopted: ids of rows that were taken while rows of
    another relay are; None: the tables were not asked yet. kept: of a table without a status, ids of rows that were taken and are not
    deleted: they look pending for as long as they are there; None: the tables were not asked yet. most: how many rows are read at once:
    fewer after the database gave no answer in time.
    """

    table: OutboxTable
    patience: Patience = field(default_factory=lambda: Patience(_PATIENCE))
    is_behind: bool | None = None
    lag: Lag | None = None
    counts_at: float = 0.0
    adopted: set[str] | None = None
    kept: set[str] | None = None
    most: int | None = None


class Outboxes:
    """The outboxes of the seed, each with its table."""

    def __init__(self, spark: SparkSession, schema: str, settings: Settings, ledgers: Ledgers, rows: Iterable[Row]) -> None:
        self.spark = spark
        self.schema = schema
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
                found[one.name] = _Connected(OutboxTable(one), is_behind=before.is_behind if before else None)
        self._connected = found

    @property
    def names(self) -> list[str]:
        """The names of the outboxes, in the order of the seed."""
        return [*self._connected]

    def position(self, name: str, state: LoopState) -> OutboxPosition:
        """How far the rows of an outbox are written back. Asks the tables, once, whether rows were taken since, or ever."""
        one, position = self._connected[name], state.outboxes.get(name)
        if one.is_behind is None:
            (taken,) = self.spark.sql(
                f"""
                select min(batch) as first from {self.schema}.events
                where kind = 'row' and batch > {position.written if position else 0:d} and source = :name
                """,
                {"name": name},
            ).collect()
            one.is_behind = taken["first"] is not None
            if position is None and one.is_behind:
                # the first loop that read this outbox was killed in its first tick
                return OutboxPosition(taken["first"] - 1, taken["first"] - 1, adopts=True)
        return position or OutboxPosition(self.ledgers.batch, state.watermark, adopts=True)

    @property
    def lags(self) -> dict[str, Lag]:
        """How far behind the outboxes were when that was counted last."""
        return {name: one.lag for name, one in self._connected.items() if one.lag is not None}

    # ---------- intake

    def take(self, name: str, position: OutboxPosition, limit: int, now: datetime) -> tuple[int, bool, OutboxPosition]:
        """Appends pending rows to `events`; returns how many, whether these are all, and the position after it.

        Raises OutboxError, AppendError.
        """
        one = self._connected[name]
        adopted = self._adopted(name, one) if position.adopts else set[str]()
        without = adopted if self._ask(one, lambda: one.table.has_status) else adopted | self._kept(name, one, position)
        rows, is_all = self._read(one, limit, without, position.adopts)
        if rows.num_rows:
            # if the append fails, the tables say whether it was made
            kept, one.kept, one.is_behind = one.kept, None, None
            self.ledgers.append("events", event_rows.of_outbox(self.spark, name, rows, self.ledgers.next_batch), now)
            one.is_behind = True
            ids = rows.column("row_id").to_pylist()
            if kept is not None:
                one.kept = kept.union(ids)
            adopted.update(ids)
        if position.adopts and is_all:
            one.adopted = None
            position = replace(position, adopts=False)
        return rows.num_rows, is_all, position

    def _read(self, one: _Connected, limit: int, without: set[str], adopts: bool) -> tuple[Any, bool]:
        """Pending rows, and whether these are all. As many as the database can give in time: the rest waits for the next tick."""
        most = min(limit, one.most or limit)
        try:
            found: tuple[Any, bool] = self._ask(
                one, lambda: one.table.read(most, without, adopts=adopts, most_bytes=self.settings.intake_max_bytes)
            )
        except NoAnswerInTimeError:
            one.most = max(_FEWEST, most // 4)
            raise
        one.most = min(limit, most * 2)
        return found

    def _adopted(self, name: str, one: _Connected) -> set[str]:
        """The ids of rows that were taken so far: what is `failed` of them is redrive's. Asks the tables once."""
        if one.adopted is None:
            one.adopted = self._ids(name, "true")
        return one.adopted

    def _kept(self, name: str, one: _Connected, position: OutboxPosition) -> set[str]:
        """The ids of rows that were taken and are not deleted. Asks the tables once."""
        if one.kept is None:
            # published rows whose deletion is not certain, too: after a crash they may still be there
            one.kept = self._ids(name, f"max_by(status, struct(batch, place)) <> 'done' or max(batch) > {position.written:d}")
        return one.kept

    def _ids(self, name: str, condition: str) -> set[str]:
        found = self.spark.sql(
            f"select row_id from {self.schema}.outbox_states where outbox = :name group by row_id having {condition}", {"name": name}
        ).collect()
        return {row["row_id"] for row in found}

    def count(self, name: str) -> None:
        """Counts the pending rows for the metrics, if it is time. Raises OutboxError."""
        one = self._connected[name]
        if self.settings.metrics_port and time.monotonic() >= one.counts_at:
            one.counts_at = time.monotonic() + self.settings.metrics_waiting_seconds
            one.lag = self._ask(one, one.table.lag)

    def is_written_back(self, name: str) -> bool:
        """Whether the states of all rows that were taken are written back: as long as they are not, the rows look pending."""
        return not self._connected[name].is_behind

    # ---------- writing back

    def write_back(self, name: str, position: OutboxPosition, written: int, decided: int, now: datetime) -> tuple[int, OutboxPosition]:
        """Writes back what became of rows: by events and results up to the batch `written`, by decisions up to `decided`.

        Returns how many, and the position after it. Raises OutboxError.
        """
        one = self._connected[name]
        states = self._states(name, position, written, decided)
        if states:
            # each part with its own time limit, so that many states are not written in vain
            missing = sum(self._ask(one, partial(one.table.write, part, now)) for part in one.table.parts(states))
            if missing:
                event(log, logging.INFO, "outbox_rows_gone", outbox=name, rows=missing)
        one.is_behind = False
        if one.kept is not None:
            one.kept -= {state.row_id for state in states if state.status == "done"}
        self.written_back[name] = len(states)
        return len(states), replace(position, written=written, decided=decided)

    def _states(self, name: str, position: OutboxPosition, written: int, decided: int) -> list[RowState]:
        found = self.spark.sql(
            f"""
            select
                row_id,
                max_by(struct(status, next_retry_at), struct(batch, place)) as last,
                max_by(attempts, struct(batch, place)) filter (where attempts is not null) as attempts,
                max_by(last_error, struct(batch, place)) filter (where last_error is not null) as last_error
            from {self.schema}.outbox_states
            where outbox = :name and (
                (place <> 1 and batch > {position.written:d} and batch <= {written:d})
                or (place = 1 and batch > {position.decided:d} and batch <= {decided:d})
            )
            group by row_id
            """,
            {"name": name},
        )
        return [
            RowState(row["row_id"], row["last"]["status"], row["attempts"], row["last"]["next_retry_at"], row["last_error"])
            for row in collected(found)
        ]

    @staticmethod
    def _ask(one: _Connected, function: Any) -> Any:
        try:
            return one.patience.call(function)
        except NoAnswerError:
            raise NoAnswerInTimeError(f"the database gives no answer within {_PATIENCE:g} s") from None


@dataclass
class OutboxIntake:
    """Takes in the pending rows of all outboxes. One that can't be read is left alone for growing pauses, and stops nothing else."""

    outboxes: Outboxes
    health: Health

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Takes in a bounded number of rows of each."""
        report = StepReport(state)
        for part in [part for part in self.health if part.kind == "outbox" and part.name not in self.outboxes.names]:
            # it is no longer in the seeds
            report.recovered(part)
        if not self.outboxes.names or not self.health.may(LEDGERS):
            return report.result()
        limit = self.outboxes.settings.intake_max_rows
        # what is undecided is bounded as for reports: while the decide step fails, rows stay where they are
        if state.window.undecided >= limit:
            return report.result()
        began = time.monotonic()
        try:
            for name in self.outboxes.names:
                self._take(report, name, limit, now)
        except Exception as error:
            return report.result(error)
        if report.counts:
            report.took("intake", began)
        return report.result()

    def _take(self, report: StepReport, name: str, limit: int, now: datetime) -> None:
        if not self.health.may(outbox(name)):
            return
        positions = report.state.outboxes
        position = self.outboxes.position(name, report.state)
        if not self.outboxes.is_written_back(name):
            report.change(outboxes={**positions, name: position})
            return
        try:
            self.outboxes.count(name)
            taken, is_all, position = self.outboxes.take(name, position, limit, now)
        except OutboxError as error:
            report.failed(outbox(name), Reason(f"its rows wait: {error}"))
            return
        report.recovered(outbox(name))
        if position != positions.get(name):
            # kept in `ticks`, so that the next start doesn't read all events of this outbox
            report.change(outboxes={**positions, name: position})
            report.count("outboxes_begun", int(name not in positions))
        if taken:
            report.count("events", taken)
            report.change(window=report.state.window.awaiting(taken, now))
            report.has_more = report.has_more or not is_all


@dataclass
class OutboxWriteBack:
    """Writes back into all outboxes what became of their rows."""

    outboxes: Outboxes
    health: Health

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Writes back all that has happened since the last time."""
        report = StepReport(state)
        self.outboxes.written_back.clear()
        if not state.outboxes or self.health.unsure:
            return report.result()
        ledgers = self.outboxes.ledgers
        written, decided = ledgers.certain, state.watermark
        newest = max(ledgers.end_of("events"), ledgers.end_of("publish_results"))
        began = time.monotonic()
        behind = {
            name: position
            for name in self.outboxes.names
            if (position := state.outboxes.get(name)) is not None
            and (newest > position.written or decided > position.decided)
            and self.health.may(outbox(name))
        }
        try:
            # what a superseded loop knows is older than what the loop in charge has written
            report.superseded_by = ledgers.superseded_by() if behind else None
            if report.superseded_by is not None:
                return report.result()
            for name, position in behind.items():
                try:
                    rows, reached = self.outboxes.write_back(name, position, written, decided, now)
                except OutboxError as error:
                    report.failed(outbox(name), Reason(f"what became of its rows is not written back: {error}"))
                    continue
                if rows:
                    report.recovered(outbox(name))
                report.count("written_back", rows)
                report.change(outboxes={**report.state.outboxes, name: reached})
        except Exception as error:
            return report.result(error)
        if report.counts.get("written_back"):
            report.took("write_back", began)
        return report.result()
