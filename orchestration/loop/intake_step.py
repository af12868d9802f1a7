"""The intake step: appends new records of the sources to the ledger `events`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from orchestration.kafka.cluster import ClusterError, Range
from orchestration.loop.health import DECIDE, KAFKA, LEDGERS, PARTITIONS, Health, Reason, source
from orchestration.loop.intake import Intake
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult

# While the decide step fails, intake stops when this many times `intake_max_rows` inputs are undecided.
_MOST_UNDECIDED = 4


@dataclass
class IntakeStep:
    """Takes in what can be read. A source that can't be read is left alone for growing pauses, and stops no other."""

    intake: Intake
    health: Health
    record_sends: Callable[[], None] = lambda: None
    """Records what the timed lane has sent. The result of a send must be in an earlier batch than a report that answers the send."""

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Takes in one bounded step of what is available."""
        report = StepReport(state)
        if not self.health.may(KAFKA) or not self.health.may(LEDGERS):
            return report.result()
        if DECIDE in self.health and state.window.undecided > _MOST_UNDECIDED * self.intake.settings.intake_max_rows:
            return report.result()
        self.intake.offsets = state.offsets
        failure: Exception | None = None
        try:
            began = time.monotonic()
            failure = self._take_in(report, self._available(report, began), began, now)
        except ClusterError as error:
            report.failed(KAFKA, Reason(str(error), error.name))
        finally:
            report.change(offsets=self.intake.offsets)
        return report.result(failure)

    def _available(self, report: StepReport, began: float) -> list[Range]:
        """What can be read, of all sources. Raises ClusterError."""
        everything = self.intake.available(began)
        report.recovered(KAFKA)
        # without what this tick has counted already
        if begun := self.intake.begun - report.state.counts.get("begun", 0):
            report.count("begun", begun)
        if self.intake.unanswered:
            where = ", ".join(self.intake.unanswered)
            report.failed(PARTITIONS, Reason(f"no answer from {where}: reports there are not read yet"))
        else:
            report.recovered(PARTITIONS)
        report.unread = self.intake.unread(everything)
        for name in self.intake.unreadable.keys() - {part.source for part in everything}:
            # there is nothing left to read, or the source is no longer in the seeds
            del self.intake.unreadable[name]
            report.recovered(source(name))
        return everything

    def _take_in(self, report: StepReport, everything: list[Range], began: float, now: datetime) -> Exception | None:
        """Takes in one bounded step. Returns the error that ended it, if any; raises ClusterError."""
        available = [part for part in everything if self.health.may(source(part.source))]
        if not available and not self.intake.is_cut:
            return None
        try:
            # after the ends were read, not before: then, if a report before these ends answers a send, the result of that send is in the
            # ledger before the report
            self.record_sends()
            events = self.intake.take(available, now)
        except ClusterError:
            raise
        except Exception as error:
            return error
        if events:
            report.recovered(LEDGERS)
            report.change(window=report.state.window.awaiting(events, now))
        self._note_sources(report, available)
        report.unread = self.intake.unread(everything)
        report.count("events", events)
        report.has_more = events >= self.intake.settings.intake_max_rows
        report.took("intake", began)
        self.intake.commit_offsets()
        return None

    def _note_sources(self, report: StepReport, available: list[Range]) -> None:
        for name in sorted({part.source for part in available}):
            if name in self.intake.unreadable:
                report.failed(source(name), Reason(self.intake.unreadable[name]))
            else:
                report.recovered(source(name))
