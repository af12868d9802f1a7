"""Recovery after a step that failed: the loop assumes nothing about the tables, and reads its position from them again."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration.loop.health import LEDGERS, Reason
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.loop.undecided import Undecided
from orchestration.tables.ledgers import AppendError, TakenOverError
from orchestration.tables.spark import in_short, is_gone


@dataclass
class Recovery:
    """Reads the position of the loop from the tables."""

    undecided: Undecided

    def after(self, state: LoopState, failure: Exception) -> StepResult:
        """Handles a step that failed, unless another loop has taken over. Raises the error if Spark itself is gone.

        Whatever failed, the next tick looks into the wheel: this shows whether the tables work, even if nothing is due for long.
        """
        report = StepReport(state)
        report.change(window=state.window.look_now())
        if isinstance(failure, AppendError):
            report.failed(LEDGERS, Reason(str(failure)))
            return self._read_again(report)
        if is_gone(failure):
            raise failure
        report.unsure = True
        report.failed(LEDGERS, Reason(f"a step failed; nothing is done until the tables are read again: {in_short(failure)}"))
        return report.result()

    def find_undecided(self, state: LoopState) -> StepResult:
        """Finds the inputs in the ledgers that have no decision."""
        report = StepReport(state)
        self.undecided.find(report)
        return report.result()

    def read_again(self, state: LoopState) -> StepResult:
        """Reads the position of the loop from the tables. Until this has succeeded, nothing is taken in, decided or sent."""
        return self._read_again(StepReport(state))

    def _read_again(self, report: StepReport) -> StepResult:
        stored = self.undecided.stored
        try:
            stored.ledgers.read_end()
            report.state = stored.raised(report.state, stored.last_row())
            self.undecided.find(report)
            # last: if an append in doubt is committed before this row, the row is refused, and everything is read once more
            for ledger in stored.ledgers.in_doubt:
                stored.seal(ledger, report.state)
            report.unsure = False
        except TakenOverError as error:
            report.unsure = True
            report.superseded_by = error.by
        except Exception as reason:
            if is_gone(reason):
                raise
            report.unsure = True
            report.failed(LEDGERS, Reason(f"the ledgers can't be read either: {in_short(reason)}"))
        return report.result()
