"""The step that executes operators' commands: it writes an order for each message, as an event.

Between the check whether a message still waits and the decision about it, the message is not sent: its delivery is withdrawn from the timed
lane before the check, and publish steps leave out what undecided inputs name (SendWindow.undecided).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestration.loop.commands import Commands
from orchestration.loop.discovery import COMMANDS
from orchestration.loop.health import DECIDE, LEDGERS, SENDS, Health
from orchestration.loop.intake import Intake
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult


@dataclass
class CommandDispatch:
    """Issues the orders of commands. The loop skips this step while results of sends could not be appended."""

    commands: Commands
    intake: Intake
    health: Health
    _seen: Mapping[str, int] | None = None

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Reads the commands that came in, and issues what their rates allow."""
        report = StepReport(state)
        if not self.health.may(LEDGERS) or DECIDE in self.health or SENDS in self.health:
            return report.result()
        failure: Exception | None = None
        offsets = {
            partition.key: state.offsets.of(partition)
            for partition in self.intake.discovery.partitions.get(COMMANDS, ())
            if state.offsets.has(partition)
        }
        self.commands.issued = state.commands
        try:
            self.commands.execute(now, came=offsets != self._seen)
            self._seen = offsets
        except Exception as error:
            failure = error
        ordered, self.commands.undecided = self.commands.undecided, 0
        report.change(commands=self.commands.issued)
        if ordered:
            report.count("ordered", ordered)
            report.change(window=report.state.window.awaiting(ordered, now))
        report.has_more = self.commands.has_more
        return report.result(failure)
