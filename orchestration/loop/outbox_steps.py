"""The steps of outboxes: their pending rows are sent or taken in, and what became of them is written back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from orchestration.loop.direct_sends import DirectSends
from orchestration.loop.health import LEDGERS, Health, Reason, outbox
from orchestration.loop.outboxes import Outboxes
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.outbox.states import OutboxError

# How long one step goes on with further pages of an outbox of which everything is sent directly, in seconds.
_PAGES_FOR = 3.0


@dataclass
class OutboxIntake:
    """Takes in the pending rows of all outboxes. One that can't be read is left alone for growing pauses, and stops nothing else.

    direct: sends those rows that need no decision.
    """

    outboxes: Outboxes
    health: Health
    direct: DirectSends

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Takes in a bounded number of rows of each."""
        report = StepReport(state)
        self.outboxes.written_back.clear()
        for part in [part for part in self.health if part.kind == "outbox" and part.name not in self.outboxes.names]:
            # it is no longer in the seeds
            report.recovered(part)
        try:
            # also while none of it is taken: the metrics show what waits
            answering = [name for name in self.outboxes.names if self._counted(report, name)]
        except Exception as error:
            return report.result(error)
        if not self.outboxes.names or not self.health.may(LEDGERS):
            return report.result()
        limit = self.outboxes.settings.intake_max_rows
        if not self.direct.knows_what_was_sent():
            # a pending row may have been sent
            return report.result()
        while self.direct.in_doubt:
            self.outboxes.look_again(self.direct.in_doubt.pop())
        # what is undecided is bounded as for reports: while the decide step fails, rows stay where they are
        if state.window.undecided >= limit:
            return report.result()
        began = time.monotonic()
        try:
            for name in answering:
                self._take(report, name, limit, now)
                if report.superseded_by is not None or self.direct.in_doubt:
                    break
        except Exception as error:
            return report.result(error)
        if report.counts:
            report.took("intake", began)
        return report.result()

    def _counted(self, report: StepReport, name: str) -> bool:
        """Counts what waits; returns whether the database has answered, or was not asked."""
        if self.health.may(outbox(name)):
            try:
                self.outboxes.count(name)
            except OutboxError as error:
                report.failed(outbox(name), Reason(f"its rows wait: {error}"))
                return False
        return True

    def _take(self, report: StepReport, name: str, limit: int, now: datetime) -> None:
        if not self.health.may(outbox(name)):
            return
        positions = report.state.outboxes
        position = self.outboxes.position(name, report.state)
        if not self.outboxes.is_written_back(name):
            report.change(outboxes={**positions, name: position})
            return
        try:
            send = partial(self.direct.send, report, name)
            until = time.monotonic() + _PAGES_FOR
            taken, is_all, position = self.outboxes.take(name, position, limit, until, now, send)
            while not (taken or is_all) and self._goes_on(report, name) and time.monotonic() < until:
                taken, is_all, position = self.outboxes.take(name, position, limit, until, now, send)
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

    def _goes_on(self, report: StepReport, name: str) -> bool:
        """Whether a further page may be read: all of the last was sent, and is marked."""
        return report.superseded_by is None and not self.direct.in_doubt and self.outboxes.is_written_back(name)


@dataclass
class OutboxWriteBack:
    """Writes back into all outboxes what became of their rows."""

    outboxes: Outboxes
    health: Health

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Writes back all that has happened since the last time."""
        report = StepReport(state)
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
                if self.outboxes.is_being_marked(name):
                    continue
                try:
                    rows, reached = self.outboxes.write_back(name, position, written, decided, now)
                except OutboxError as error:
                    report.failed(outbox(name), Reason(f"what became of its rows is not written back: {error}"))
                    continue
                if rows:
                    report.recovered(outbox(name))
                report.change(outboxes={**report.state.outboxes, name: reached})
        except Exception as error:
            return report.result(error)
        # what was marked meanwhile, too
        report.count("written_back", sum(self.outboxes.written_back.values()))
        if report.counts.get("written_back"):
            report.took("write_back", began)
        return report.result()
