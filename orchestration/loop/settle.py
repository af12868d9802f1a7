"""The settle step: reads how far consumer groups are, closes circuit breakers, checks canaries, and orders what waited for that."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.commands import Commands
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.loop.followers import Followers
from orchestration.loop.health import CONSUMERS, DECIDE, KAFKA, LEDGERS, Health, Reason
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.tables.ledgers import Ledgers


@dataclass
class Settle:
    """Finds out which sends have succeeded.

    unread: the topics and patterns that a source speaks for, of all sources that this tick has not read completely; None: not known.
    """

    consumers: Consumers
    breakers: CircuitBreakers
    followers: Followers
    commands: Commands
    ledgers: Ledgers
    health: Health
    unread: frozenset[str] | None = None
    unrecorded: dict[Place, int] = field(default_factory=dict)
    """What has settled and no row of `ticks` says yet, as appending one has failed."""

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """now: when the tick began. Later reports may be undecided: with a later time, a message that failed could count as settled."""
        report = StepReport(state)
        if not self.health.may(LEDGERS) or KAFKA in self.health:
            return report.result()
        complete = Completeness(self.unread or frozenset(), decided=self.unread is not None and DECIDE not in self.health)
        self.commands.issued = state.commands
        try:
            with self.breakers.of(report):
                released = self._look(report, now, complete)
        except Exception as error:
            return report.result(error)
        report.change(awaited=tuple(self.consumers.state()), awaited_batch=self.consumers.looked)
        report.count("circuit_breakers", self.breakers.changes)
        self.breakers.changes = 0
        if released:
            report.count("released", released)
            report.change(window=report.state.window.awaiting(released, now))
            report.has_more = True
        return report.result()

    def _look(self, report: StepReport, now: datetime, complete: Completeness) -> int:
        """Does the step; returns how many releases were ordered."""
        self.unrecorded |= self.consumers.look(now, self.ledgers.certain, complete=complete)
        settled = dict(self.unrecorded)
        report.change(settled=settled)
        silent = sorted(self.consumers.unanswered.values())
        if silent:
            report.failed(CONSUMERS, Reason("; ".join(one.why for one in silent), silent[-1].error))
        else:
            report.recovered(CONSUMERS)
        self.breakers.look(settled, self.consumers, now, complete=complete)
        report.count("settled", len(settled))
        self.commands.look(self.consumers, now, complete=complete)
        self.followers.sequences.note_settled(settled)
        followers = self.followers.look(now, report.state.watermark) if complete.decided else 0
        if followers:
            report.count("followers", followers)
        return self.breakers.release(now) + followers
