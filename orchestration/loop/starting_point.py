"""The position of the last loop, which a start goes on from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from orchestration.clock import LoopClock
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.leadership import slots_of
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport
from orchestration.loop.stored import Stored
from orchestration.loop.window import SendWindow
from orchestration.settings import Settings
from orchestration.tables.ledgers import Ledgers


@dataclass(frozen=True)
class StartingPoint:
    """state: with the generation of the loop that starts. last: the last row of `ticks`, None where there is none."""

    stored: Stored
    breakers: CircuitBreakers
    state: LoopState
    last: SparkRow | None

    def caught_up(self) -> LoopState:
        """The state when this loop is in charge: with what the last loop has read and sent until it was refused."""
        state = self.stored.raised(self.state, self.last)
        return replace(state, window=self.stored.with_unknown_sends(state.window))


def read_starting_point(settings: Settings, spark: SparkSession, schema: str) -> StartingPoint:
    """Reads the position from the tables. The loop that starts gets the next generation."""
    ledgers = Ledgers(spark, schema)
    ledgers.read_end()
    stored = Stored(spark, schema, ledgers, LoopClock(None))
    last = stored.last_row()
    if last is not None:
        stored.clock = LoopClock(last["loop_time"])
    # not after that of the last row: an older loop may have written that
    ledgers.generation = ledgers.newest_generation() + 1
    now = stored.clock.now()
    before = LoopState.from_row(last) if last else LoopState(0, "start", 0, "", 0, now, SendWindow(now), 0)
    report = StepReport(stored.raised(before.of_kind("tick"), last))
    report.change(
        tick=0,
        settled={},
        generation=ledgers.generation,
        instance=settings.instance,
        # one more, for the timed lane
        slots=slots_of(settings),
        watermark=max(before.watermark, stored.last_decided()),
    )
    # the row of this start records the circuit breakers as of its watermark, so what the last loop did after its last row is added first
    breakers = CircuitBreakers(spark, schema, ledgers, timedelta(seconds=settings.settle_seconds), settings.circuit_breaker_release_rate)
    with breakers.of(report):
        breakers.all_changed()
        were_open = breakers.open
        since = breakers.decided(before.watermark, report.state.watermark, now, before.window.lowest_floor)
        breakers.resume(int(last["batch"]) if last else 0, were_open)
    report.change(window=report.state.window.kept_under(since))
    return StartingPoint(stored, breakers, report.state, last)
