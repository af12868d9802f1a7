"""The step that decides: dbt makes a decision of each input that has none, in `deliveries`. What is decided, and why, is SQL."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from orchestration.clock import LoopClock
from orchestration.logs import event
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.health import DECIDE, Health, Reason
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.loop.undecided import Undecided
from orchestration.tables.dbt import Dbt, DbtError

log = logging.getLogger(__name__)


@dataclass
class Decide:
    """Decides what is in the ledgers. cold: whether no decide run has ended yet; the first takes some seconds more than the others."""

    dbt: Dbt
    undecided: Undecided
    breakers: CircuitBreakers
    rules: RulesInForce
    health: Health
    clock: LoopClock
    stopping: threading.Event
    cold: bool = True

    def run(self, state: LoopState, now: datetime, upto: int | None = None) -> StepResult:
        """Decides all that is undecided; upto: no later batch than this one."""
        if state.window.undecided == 0 or not self.health.may(DECIDE) or self.health.unsure:
            return StepResult(state)
        return self.decide_up_to(state, self.undecided.stored.ledgers.batch if upto is None else upto)

    def decide_up_to(self, state: LoopState, upto: int) -> StepResult:
        """Decides what is in the ledgers up to a batch, by as many runs of dbt as it takes.

        One ends before a second batch about its messages.
        """
        report = StepReport(state)
        began = time.monotonic()
        failure: Exception | None = None
        try:
            while self._fold(report, upto) and report.state.watermark < upto and not self.stopping.is_set():
                pass
        except Exception as error:
            failure = error
        if "decisions" in report.counts:
            report.took("decide", began)
        return report.result(failure)

    def _fold(self, report: StepReport, upto: int) -> bool:
        """One decide run. Returns whether the next may follow."""
        # a decide run's guard keeps batches apart, but knows no generations
        by = self.undecided.stored.ledgers.superseded_by()
        if by is not None:
            report.superseded_by = by
            return False
        variables: dict[str, object] = {"watermark": report.state.watermark, "upto": upto}
        if self.rules.hash:
            variables["rules_hash"] = self.rules.hash
        failed: DbtError | None = None
        try:
            self.dbt.run("run", select=["deliveries"], variables=variables)
        except DbtError as error:
            failed = error
        try:
            decided = self._note_decided(report, upto if failed is None else None)
            if failed is not None and self.rules.hash is not None and self.rules.hash != self.rules.loaded_hash():
                # the rules have changed under it: the next tick loads the files again
                self.rules.is_stale = True
        except Exception:
            # nothing is sent before it is known what must be held
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
        self.cold = False
        return decided > 0

    def _note_decided(self, report: StepReport, upto: int | None) -> int:
        """Sees how far the tables are decided, and which circuit breakers open for it; returns how many inputs that are.

        What is committed counts, whoever did it and whatever was reported: no batch is decided twice. upto: where a run that has ended
        well was told to end; None: it has not, and only what lies in the table counts.
        """
        stored, before = self.undecided.stored, report.state
        reached = max(before.watermark, stored.last_decided())
        if reached > before.watermark:
            with self.breakers.of(report):
                since = self.breakers.decided(before.watermark, reached, self.clock.now(), before.window.lowest_floor)
            report.change(window=report.state.window.kept_under(since).look_now())
        report.change(watermark=reached)
        first: int | None = None
        if reached < stored.ledgers.batch:
            first = self.undecided.find(report)
        else:
            report.change(window=report.state.window.all_decided())
        if upto is not None and (first is None or first > upto):
            # what is left up to there are batches without inputs
            report.change(watermark=max(reached, upto))
        return before.window.undecided - report.state.window.undecided
