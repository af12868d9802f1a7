"""What a loop that is in charge serves to others while it runs: metrics to scrapes, answers to commands."""

from __future__ import annotations

from contextlib import AbstractContextManager

from orchestration.answers.allowance import Allowance
from orchestration.answers.answers import Answers
from orchestration.loop.metrics import Metrics, Turn
from orchestration.loop.stored import Stored
from orchestration.settings import Settings
from orchestration.tables.spark import session_to_ask


class Serving:
    """The servers of one loop."""

    def __init__(self, settings: Settings, stored: Stored, watermark: int) -> None:
        """Starts them. Metrics count from 0; there are none if `metrics_port` is 0, or the port is not available."""
        self._metrics = _metrics(settings, stored, watermark) if settings.metrics_port else None
        self._allowance = Allowance()
        self._answers = Answers(settings, stored.spark, stored.ledgers.generation, allowance=self._allowance)
        self._answers.begin()

    @property
    def counts(self) -> bool:
        """Whether there are metrics, so that `measure` is to be called after each tick."""
        return self._metrics is not None

    def tick(self) -> AbstractContextManager[None]:
        """A tick: questions take a bounded part of it."""
        return self._allowance.tick()

    def measure(self, turn: Turn) -> None:
        """Counts what a tick did."""
        if self._metrics is not None:
            self._metrics.measure(turn)

    def close(self) -> None:
        """Leaves the port and the socket to the next loop."""
        self._answers.close()
        if self._metrics is not None:
            self._metrics.close()


def _metrics(settings: Settings, stored: Stored, watermark: int) -> Metrics | None:
    ask = session_to_ask(settings)
    metrics = Metrics(settings, stored.spark, ask, stored.schema, watermark=watermark, batch=stored.ledgers.batch)
    return metrics if metrics.serve(settings.metrics_address, settings.metrics_port) else None
