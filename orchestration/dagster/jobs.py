"""The jobs.

Every job runs in one process: Spark and dbt take half a minute to start, so no step gets a process of its own.
"""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.dagster.assets import LOOP, what_a_tick_wrote, what_hinders
from orchestration.dagster.graph import WRITTEN_BY_A_TICK
from orchestration.dagster.resource import Redrive, forwarded, our_errors

if TYPE_CHECKING:
    from orchestration.loop.loop import Loop, Tick
    from orchestration.operators.commands import CommandRequest
    from orchestration.operators.lists import Target

# How long a shift runs the loop by default.
SHIFT_MINUTES = 13.0

tick = dg.define_asset_job(
    "tick",
    selection=dg.AssetSelection.assets(*WRITTEN_BY_A_TICK).without_checks(),
    description="Runs one tick of the loop, with all its steps: rules, intake, commands, decide, publish, settle, feeds.",
)

report = dg.define_asset_job(
    "report",
    selection=dg.AssetSelection.groups("marts", "report") | dg.AssetSelection.all_asset_checks(),
    description="Creates the marts again, writes the report on dead letters, and runs all checks.",
)


class ShiftConfig(dg.Config):
    """The config of a shift."""

    minutes: float = Field(default=SHIFT_MINUTES, gt=0, description="How long the loop runs, after Spark has started.")
    take_over: bool = Field(default=False, description="Run even if another loop is running: that loop then stops.")


@dg.op(pool=LOOP, description="Runs the loop for some minutes in one process, and records what each tick wrote as materializations.")
def turn(context: dg.OpExecutionContext, config: ShiftConfig, redrive: Redrive) -> None:
    ticks: queue.SimpleQueue[Tick] = queue.SimpleQueue()
    with our_errors(), forwarded(context.log):
        loop = redrive.new_loop(take_over=config.take_over, on_tick=ticks.put)
        # The loop runs in its own thread: it never waits for Dagster to write an event, and if the run is cancelled, the exception is
        # raised here, between two events, while the loop ends its step as it does on SIGTERM.
        with ThreadPoolExecutor(1, thread_name_prefix="loop") as threads:
            try:
                turning = threads.submit(_turn_for, redrive, loop, config.minutes * 60)
                while not (turning.done() and ticks.empty()):
                    _record(context, ticks)
            finally:
                loop.stopping.set()
        turning.result()
    if trouble := what_hinders(redrive.health()):
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
    """Records the next tick, if one ends soon, as materializations of the tables that it wrote. An idle tick records nothing."""
    try:
        done = ticks.get(timeout=0.5)
    except queue.Empty:
        return
    for table, metadata in what_a_tick_wrote(done).items():
        if metadata["rows"]:
            context.log_event(dg.AssetMaterialization(table, metadata=dict(metadata)))


@dg.job(
    description=f"A shift: runs the loop for some minutes, {SHIFT_MINUTES:g} by default, in one process.",
    executor_def=dg.in_process_executor,
)
def shift() -> None:
    turn()


@dg.op(description="Compacts the tables, expires snapshots, removes orphaned files, and empties purged payloads. May run beside the loop.")
def maintain_tables(context: dg.OpExecutionContext, redrive: Redrive) -> None:
    from orchestration.clock import wall_clock
    from orchestration.operators.outbox_purge import purge_outboxes
    from orchestration.tables.maintenance import maintain

    with our_errors(), forwarded(context.log):
        done = maintain(redrive.settings, redrive.spark)
    for table in done.tables:
        facts = {name: value for name, value in asdict(table).items() if name != "table" and value != ""}
        context.log_event(dg.AssetObservation(table.table, metadata=facts, description="after maintenance"))
    for one in purge_outboxes(redrive.settings, wall_clock()):
        (context.log.warning if one.problem else context.log.info)(str(one))


@dg.job(description="Table maintenance. What it did shows as an observation of each table.", executor_def=dg.in_process_executor)
def maintenance() -> None:
    maintain_tables()


class RedriveConfig(dg.Config):
    """Which dead letters, why, and how: options of `redrive dlq redrive`. A dead letter must match all filters."""

    reason: str = Field(description="Why: it is kept with the command.")
    who: str = Field(description="Who gives the command.")
    dry_run: bool = Field(default=True, description="Only show what would be sent, and keep the list. To send: false, with list_name.")
    list_name: str = Field(default="", description="The list that a dry run has kept. Required to send; ids and filters are then ignored.")
    ids: list[str] = Field(default=[], description="Message ids.")
    where: str = Field(default="", description="One condition in SQL over the columns of the mart stranded_messages.")
    group: str = Field(default="", description="The consumer group; ^ begins a regular expression.")
    topic: str = Field(default="", description="The original topic; or ^...")
    error_class: str = Field(default="", description="The error's class, with or without its package; or ^...")
    fingerprint: str = Field(default="", description="The fingerprint of a group in dead_letter_groups.")
    rate: str = Field(default="", description="50/s, 10/m, 1/h. Empty: as fast as it goes.")
    canary: int = Field(default=0, description="Send this many first; the rest when they have succeeded. 0: no canaries, send all.")
    ticket: str = Field(default="", description="A ticket or an address.")


@dg.op(description="Shows which open dead letters would be sent again, and keeps the list; or sends a list that was kept.")
def redrive_dead_letters(context: dg.OpExecutionContext, config: RedriveConfig, redrive: Redrive) -> None:
    from orchestration.operators.commands import CommandError, CommandRequest, check_request, parse_rate
    from orchestration.operators.lists import kept, select_deliveries
    from orchestration.operators.selections import Selection
    from orchestration.rules.seeds import read_seeds

    with our_errors():
        request = CommandRequest(
            "redrive",
            config.reason,
            config.who,
            config.ticket or None,
            rate=parse_rate(config.rate) if config.rate else None,
            canary=config.canary or None,
        )
        seeds = read_seeds(redrive.settings.seeds)
        check_request(redrive.settings, seeds, request)
        if config.list_name:
            listed = kept(redrive.settings.home, config.list_name)
        elif not config.dry_run:
            raise CommandError("list_name is required to send: run with dry_run: true first, look at its list, and give its name")
        else:
            dead = redrive.asking.dead_letters
            selection = Selection(
                tuple(config.ids),
                "open",
                dead.checked_pattern("topic", config.topic or None),
                dead.checked_pattern("error_class", config.error_class or None),
                dead.checked_pattern("group", config.group or None),
                config.fingerprint or None,
                where=dead.checked(config.where or None),
            )
            listed = select_deliveries(dead, request.what, selection, None)
        if not listed:
            raise CommandError("no open dead letter matches: nothing is done")
        _carry_out(context, redrive, request, listed, dry_run=config.dry_run)


@dg.job(
    description="Sends dead letters again: first a dry run, whose list is an observation of dead_letters, then just that list.",
    executor_def=dg.in_process_executor,
)
def redrive_by_hand() -> None:
    redrive_dead_letters()


class TriageConfig(dg.Config):
    """The config of a triage."""

    dry_run: bool = Field(default=False, description="Only show what would be sent, and keep the lists.")


@dg.op(description="Redrives by the seed redrive_rules, discards and purges by purge_after of routes: one command for each rule.")
def triage_dead_letters(context: dg.OpExecutionContext, config: TriageConfig, redrive: Redrive) -> None:
    from orchestration.operators.commands import check_request
    from orchestration.operators.lists import triage
    from orchestration.rules.seeds import read_seeds

    with our_errors():
        seeds = read_seeds(redrive.settings.seeds)
        for request, listed in triage(redrive.asking.dead_letters):
            check_request(redrive.settings, seeds, request)
            _carry_out(context, redrive, request, listed, dry_run=config.dry_run)


@dg.job(description="Redrives, discards and purges dead letters as the rules say.", executor_def=dg.in_process_executor)
def triage() -> None:
    triage_dead_letters()


def _carry_out(
    context: dg.OpExecutionContext, redrive: Redrive, request: "CommandRequest", listed: "list[Target]", *, dry_run: bool
) -> None:
    """Sends a command, or keeps its list, and records a summary of the list as an observation of dead_letters."""
    from orchestration.clock import wall_clock
    from orchestration.operators.lists import keep, shown
    from orchestration.operators.sending import send

    summary = shown(lambda: redrive.asking.rulebook, request, listed, wall_clock())
    counted = [(by, name, count) for by, counts in summary for name, count in counts]
    metadata: dict[str, Any] = {
        "messages": len(listed),
        "which": dg.MetadataValue.table([dg.TableRecord({"by": by, "which": name, "messages": count}) for by, name, count in counted]),
        "reason": request.reason,
        **({"list": keep(redrive.settings.home, listed)} if dry_run else {"command": send(redrive.settings, request, listed)}),
    }
    description = "would be redriven" if dry_run else "command sent"
    context.log_event(dg.AssetObservation("dead_letters", metadata=metadata, description=description))


JOBS = (tick, shift, report, maintenance, redrive_by_hand, triage)
