"""The steps that tell others what the loop does, on topics of their own: the decision feed, and the feed of gates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from orchestration.kafka.cluster import ClusterError
from orchestration.kafka.json_topics import Outlet, OutletError
from orchestration.loop.announce import Announcer
from orchestration.loop.gates import Gates
from orchestration.loop.health import ANNOUNCEMENTS, GATES, Health, Reason
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult


@dataclass
class DecisionFeed:
    """Announces what was decided since the last time. announcer: None where nobody wants to hear of it."""

    announcer: Announcer | None
    health: Health

    def begin(self, state: LoopState) -> int | None:
        """The place to go on from: where the last loop got to; from now on, if that one had no feed."""
        if self.announcer is None:
            return None
        return state.watermark if state.announced is None else state.announced

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Announces a bounded number of decisions."""
        report = StepReport(state)
        after = state.announced
        if self.announcer is None or after is None or after >= state.watermark:
            return report.result()
        if not self.health.may(ANNOUNCEMENTS) or self.health.unsure:
            return report.result()
        began = time.monotonic()
        try:
            announced = self.announcer.announce(after, state.watermark)
        except (OutletError, ClusterError) as error:
            report.failed(ANNOUNCEMENTS, _not_told("decisions are not announced, and will be", error))
            return report.result()
        except Exception as error:
            return report.result(error)
        report.recovered(ANNOUNCEMENTS)
        report.change(announced=announced.upto)
        report.count("announced", announced.decisions)
        report.rest = announced.upto < state.watermark
        report.took("announce", began)
        return report.result()


@dataclass
class GateFeed:
    """Tells which gates have changed. outlet: None where nobody wants to hear of it."""

    outlet: Outlet | None
    gates: Gates
    health: Health

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Tells of all changes since the last time."""
        report = StepReport(state)
        if self.outlet is None:
            self.gates.untold.clear()
            return report.result()
        if not self.gates.untold or not self.health.may(GATES):
            return report.result()
        try:
            with self.gates.of(report):
                self.outlet.tell(self.gates.announcements())
        except (OutletError, ClusterError) as error:
            report.failed(GATES, _not_told("it is not told which gates are closed, and will be", error))
            return report.result()
        report.recovered(GATES)
        self.gates.untold.clear()
        return report.result()


def _not_told(what: str, error: OutletError | ClusterError) -> Reason:
    return Reason(f"{what}: {error}", error.name if isinstance(error, ClusterError) else None)
