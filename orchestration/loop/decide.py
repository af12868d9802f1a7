"""The decide step: makes one decision for each input that has none, and appends it to `deliveries`, by running dbt models."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from orchestration.clock import LoopClock
from orchestration.logs import event
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import DECIDE, Health, Reason
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.loop.undecided import Undecided
from orchestration.tables.dbt import DbtError
from orchestration.tables.decide_statements import DecideError, DecideRunner

log = logging.getLogger(__name__)

# How many batches without inputs, such as results of rows that are sent directly, may come after the last decided one: maintenance leaves
# alone what is not decided.
_MOST_BEHIND = 1_000


@dataclass
class Decide:
    """Decides the inputs in the ledgers."""

    runner: DecideRunner
    undecided: Undecided
    breakers: CircuitBreakers
    rules: RulesInForce
    health: Health
    clock: LoopClock
    stopping: threading.Event
    hand_over: HandOver

    @property
    def cold(self) -> bool:
        """Whether no decide run has ended yet: the first takes some seconds more than the others."""
        return not self.runner.has_run

    def run(self, state: LoopState, now: datetime, upto: int | None = None) -> StepResult:
        """Decides all that is undecided; upto: no later batch than this one."""
        if not self.health.may(DECIDE) or self.health.unsure:
            return StepResult(state)
        if state.window.undecided == 0 and self.undecided.stored.ledgers.certain - state.watermark < _MOST_BEHIND:
            return StepResult(state)
        return self.decide_up_to(state, self.undecided.stored.ledgers.certain if upto is None else upto)

    def decide_up_to(self, state: LoopState, upto: int) -> StepResult:
        """Decides the inputs in the ledgers up to a batch, in as many decide runs as it takes.

        A decide run ends before a second batch that concerns one of its messages.
        """
        report = StepReport(state)
        began = time.monotonic()
        failure: Exception | None = None
        try:
            self.hand_over.withdraw_named(state)
            while self._run_once(report, upto) and report.state.watermark < upto and not self.stopping.is_set():
                pass
        except Exception as error:
            failure = error
        if "decisions" in report.counts:
            report.took("decide", began)
        return report.result(failure)

    def _run_once(self, report: StepReport, upto: int) -> bool:
        """One decide run. Returns whether the next may follow."""
        # a superseded loop must not decide, and only this check prevents it: the guard of the append refuses batches that are decided
        # already, not an older generation
        by = self.undecided.stored.ledgers.superseded_by()
        if by is not None:
            report.superseded_by = by
            return False
        failed: DbtError | DecideError | None = None
        try:
            self.runner.run(report.state.watermark, upto, self.rules.hash, report.state.window.undecided)
        except (DbtError, DecideError) as error:
            failed = error
        try:
            decided = self._note_decided(report, upto if failed is None else None)
            if failed is not None and self.rules.hash is not None and self.rules.hash != self.rules.loaded_hash():
                # another process has changed the table `rules`: the next tick loads the seed files again
                self.rules.is_stale = True
        except Exception:
            # passed on, so that nothing is sent before the loop knows which circuit breakers have opened
            if failed is not None:
                report.failed(DECIDE, Reason(f"reports wait: {failed}"))
            raise
        report.count("decisions", decided)
        if failed is not None and not decided:
            report.failed(DECIDE, Reason(f"nothing was decided, and reports wait: {failed}"))
            return False
        if failed is not None:
            event(log, logging.WARNING, "decisions_found_after_error", inputs=decided, reason=failed)
        report.recovered(DECIDE)
        return decided > 0

    def _note_decided(self, report: StepReport, upto: int | None) -> int:
        """Reads the last decided batch from the tables, and opens circuit breakers; returns how many inputs were decided.

        What is committed counts, whichever process did it and whatever dbt reported, so that no batch is decided twice. upto: the last
        batch of a run that succeeded; None after a run that failed, when only the table shows how far it got.
        """
        stored, before = self.undecided.stored, report.state
        reached = max(before.watermark, stored.last_decided())
        if reached > before.watermark:
            with self.breakers.of(report):
                were_open = set(self.breakers.open)
                since = self.breakers.decided(before.watermark, reached, self.clock.now(), before.window.lowest_floor)
                if opened := set(self.breakers.open) - were_open:
                    self.hand_over.withdraw(breakers=opened)
            report.change(window=report.state.window.kept_under(since).look_now())
        report.change(watermark=reached)
        first: int | None = None
        if reached < stored.ledgers.certain:
            first = self.undecided.find(report)
        else:
            report.change(window=report.state.window.all_decided())
        if upto is not None and (first is None or first > upto):
            # the batches after `reached` have no inputs, and so no rows in the table
            report.change(watermark=max(reached, upto))
        return before.window.undecided - report.state.window.undecided
