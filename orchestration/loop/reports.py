"""What the loop reports after a tick: lines of the log, the status file, and the input of the metrics."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime

from orchestration.clock import LoopClock
from orchestration.logs import event
from orchestration.loop.health import KAFKA, Health
from orchestration.loop.intake import Intake
from orchestration.loop.metric_names import NONE, Labels
from orchestration.loop.metrics import Turn
from orchestration.loop.outboxes import Outboxes
from orchestration.loop.state import LoopState
from orchestration.loop.steps import Tick
from orchestration.loop.window import SendWindow
from orchestration.status import Status, text
from orchestration.tables.spark import in_short, is_gone

log = logging.getLogger(__name__)


def log_first_sends(tick: Tick) -> None:
    """Logs what a start has sent before its first decisions, if anything was due."""
    if any(tick.counts.get(name) for name in ("delivered", "failed", "unknown", "held")):
        event(log, logging.INFO, "due_deliveries_sent", **_rows(tick))


def _rows(tick: Tick) -> dict[str, int]:
    return {name: count for name, count in tick.counts.items() if count}


def log_tick(number: int, tick: Tick) -> None:
    """Logs a tick that did something."""
    steps = {f"{step}_ms": ms for step, ms in tick.step_ms.items()}
    median, most = tick.lateness_ms or (None, None)
    event(log, logging.INFO, "tick_completed", tick=number, **_rows(tick), **steps, late_p50_ms=median, late_p99_ms=most)


def what_it_waits_for(window: SendWindow, health: Health, waiting: Callable[[], int]) -> str:
    """Why the loop isn't idle, in a line. waiting: as Loop.waiting."""
    reasons = [f"{entry.what}: {entry.why}" for entry in health.entries(window.paused)]
    if window.undecided:
        reasons.append(f"{window.undecided} inputs are not decided")
    try:
        still = waiting()
    except Exception as error:
        if is_gone(error):
            raise
        reasons.append(f"the tables can't be read: {in_short(error)}")
    else:
        if still:
            again = f"; the loop looks again at {text(window.next_due)}" if window.next_due else ""
            reasons.append(f"{still} deliveries are open, held or not issued{again}")
    return "; ".join(reasons) or "nothing, but it has not been idle for long enough"


def status_of(
    phase: str, state: LoopState, tick: Tick, batch: int, health: Health, clock: LoopClock, lane: tuple[int, datetime | None]
) -> Status:
    """The status of the loop. phase: `running` or `stopped`. batch: the last number of an append, even of one that failed.

    lane: as TimedLane.waiting.
    """
    entries = health.entries(state.window.paused)
    return Status(
        state=phase,
        generation=state.generation,
        instance=state.instance,
        pid=os.getpid(),
        tick=state.tick,
        at=text(clock.now()) or "",
        watermark=state.watermark,
        batch=batch,
        floor=text(state.window.floor) or "",
        next_due=text(state.window.next_due),
        in_lane=lane[0],
        lane_next_due=text(lane[1]),
        counts=dict(tick.counts),
        step_ms=dict(tick.step_ms),
        lateness_ms=tick.lateness_ms,
        sent={lane: {"delivered": sent.delivered, "lateness_ms": sent.lateness_ms} for lane, sent in tick.sent.items()},
        trouble={entry.what: entry.why for entry in entries},
        health=tuple(entries),
    )


def turn_of(
    state: LoopState,
    began: datetime,
    batch: int,
    health: Health,
    intake: Intake,
    commands: Mapping[Labels, tuple[int, int]],
    in_lane: int,
    outboxes: Outboxes | None = None,
) -> Turn:
    """The input of the metrics. began: when the tick began. batch: the last one that is final (Ledgers.certain).

    commands: as Commands.progress.
    """
    return Turn(
        generation=state.generation,
        watermark=state.watermark,
        batch=batch,
        floor=state.window.floor,
        low=state.window.lowest_floor,
        # inputs of this tick, such as releases that it ordered, are decided in the next one
        undecided=state.window.undecided if (state.window.undecided_since or began) < began else 0,
        in_lane=in_lane,
        events=state.counts.get("events", 0),
        step_ms=state.step_ms,
        lag={} if KAFKA in health else intake.lag(),
        outboxes={} if outboxes is None else outboxes.lags,
        written_back={} if outboxes is None else outboxes.written_back,
        commands=commands,
        paused_destinations={topic: one.reason.error or NONE for topic, one in state.window.paused.items()},
        trouble={str(part): pause.reason.error or NONE for part, pause in health.items()},
    )
