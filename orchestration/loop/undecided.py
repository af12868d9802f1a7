"""Finds what has no decision yet: at a start, after an append that failed or came late, after failed sends of the timed lane, and where a
decide run left inputs."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.steps import StepReport
from orchestration.loop.stored import Stored


@dataclass
class Undecided:
    """The inputs in the ledgers that are not decided, and the orders of circuit breakers among them."""

    stored: Stored
    breakers: CircuitBreakers

    def find(self, report: StepReport) -> int | None:
        """Notes these inputs and orders in the state. Returns the batch of the first input; None: there are none."""
        report.state, first = self.stored.with_undecided(report.state)
        with self.breakers.of(report):
            self.breakers.find_undecided(report.state.watermark)
        return first
