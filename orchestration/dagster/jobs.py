"""Jobs: what can be run.

Every job runs in one process: Spark and dbt take half a minute to start, so no step gets a process of its own.
"""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from orchestration.dagster.assets import LOOP, what_a_tick_wrote, what_hinders
from orchestration.dagster.graph import WRITTEN_BY_A_TICK
from orchestration.dagster.resource import Redrive, forwarded, told

if TYPE_CHECKING:
    from orchestration.loop import Loop, Tick

# How long a shift turns if nobody says otherwise.
SHIFT_MINUTES = 14.0

tick = dg.define_asset_job(
    "tick",
    selection=dg.AssetSelection.assets(*WRITTEN_BY_A_TICK).without_checks(),
    description="Turns the loop once: intake, fold, publish.",
)

report = dg.define_asset_job(
    "report",
    selection=dg.AssetSelection.groups("marts", "report") | dg.AssetSelection.all_asset_checks(),
    description="Makes the marts anew, writes the report on dead letters, and looks whether everything that must hold holds.",
)


class ShiftConfig(dg.Config):
    """How long a shift turns the loop."""

    minutes: float = Field(default=SHIFT_MINUTES, gt=0, description="How long it turns. Starting Spark comes before that.")
    take_over: bool = Field(default=False, description="Turn though another loop is running: that one then stops.")


@dg.op(pool=LOOP, description="Turns the loop for some minutes in one warm process, and records what each tick wrote as materializations.")
def turn(context: dg.OpExecutionContext, config: ShiftConfig, redrive: Redrive) -> None:
    ticks: queue.SimpleQueue[Tick] = queue.SimpleQueue()
    with told(), forwarded(context.log):
        loop = redrive.new_loop(take_over=config.take_over, on_tick=ticks.put)
        # The loop turns in a thread of its own: it never waits for Dagster to write an event, and a run that is cancelled raises here,
        # between two events, while the loop ends its step as it does on SIGTERM.
        with ThreadPoolExecutor(1, thread_name_prefix="loop") as threads:
            try:
                turning = threads.submit(_turn_for, redrive, loop, config.minutes * 60)
                while not (turning.done() and ticks.empty()):
                    _record(context, ticks)
            finally:
                loop.stopping.set()
        turning.result()
    if trouble := what_hinders(redrive.trouble()):
        raise dg.Failure(trouble, allow_retries=False)


def _turn_for(redrive: Redrive, loop: "Loop", seconds: float) -> None:
    with redrive.started(loop):
        timer = threading.Timer(seconds, loop.stopping.set)
        timer.daemon = True
        timer.start()
        try:
            loop.run()
        finally:
            timer.cancel()


def _record(context: dg.OpExecutionContext, ticks: "queue.SimpleQueue[Tick]") -> None:
    """Records the next tick, if one comes soon, as materializations of what it wrote. One that did nothing is no news."""
    try:
        done = ticks.get(timeout=0.5)
    except queue.Empty:
        return
    for table, metadata in what_a_tick_wrote(done).items():
        if metadata["rows"]:
            context.log_event(dg.AssetMaterialization(table, metadata=dict(metadata)))


@dg.job(
    description=f"The loop in shifts: turns it for some minutes, {SHIFT_MINUTES:g} by default, in one warm process.",
    executor_def=dg.in_process_executor,
)
def shift() -> None:
    turn()


@dg.op(description="Compacts the tables, expires snapshots, removes orphaned files. Changes no row, and may run beside the loop.")
def maintain_tables(context: dg.OpExecutionContext, redrive: Redrive) -> None:
    from orchestration.maintenance import maintain

    with told(), forwarded(context.log):
        done = maintain(redrive.settings, redrive.spark)
    for table in done.tables:
        facts = {name: value for name, value in asdict(table).items() if name != "table" and value != ""}
        context.log_event(dg.AssetObservation(table.table, metadata=facts, description="after maintenance"))


@dg.job(description="Table maintenance. What it did shows as an observation of each table.", executor_def=dg.in_process_executor)
def maintenance() -> None:
    maintain_tables()


JOBS = (tick, shift, report, maintenance)
