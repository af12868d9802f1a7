"""The loop: runs the steps of a tick strictly one after another, then sleeps until something is due, at most `poll_seconds`.

It holds no retry rule: SQL decides. It holds the order of steps that makes this safe: an input is in a ledger before it is decided, a
decision is committed before it is sent, and a result is committed before the floor moves over it.

Each step takes the state and returns what it did (steps.py), which `_apply` puts into the state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from orchestration.clock import LoopClock
from orchestration.kafka.cluster import Cluster
from orchestration.logs import event
from orchestration.loop.assembly import Steps, assembled
from orchestration.loop.commands import Commands
from orchestration.loop.health import DECIDE, LEDGERS, STATUS, Health, Reason
from orchestration.loop.intake import Intake
from orchestration.loop.lane import TimedLane
from orchestration.loop.leadership import Leadership
from orchestration.loop.preparation import begin_dbt, prepare_tables
from orchestration.loop.reports import log_first_sends, log_tick, status_of, turn_of, what_it_waits_for
from orchestration.loop.rules_in_force import RulesInForce
from orchestration.loop.serving import Serving
from orchestration.loop.starting_point import StartingPoint, read_starting_point
from orchestration.loop.state import LoopState
from orchestration.loop.steps import Step, StepResult, Tick, begin, reduce
from orchestration.loop.stored import Stored
from orchestration.loop.takeover import TakeOver
from orchestration.presence import Presence
from orchestration.rules.seeds import read_seeds
from orchestration.settings import Settings
from orchestration.status import write_status
from orchestration.tables.interpreted import interpreted
from orchestration.tables.ledgers import Ledgers, TakenOverError
from orchestration.tables.spark import schema as schema_of
from orchestration.tables.spark import start_session

log = logging.getLogger(__name__)

# How often a loop that runs until it is idle logs what it waits for, in seconds.
_SAYS_EVERY = 60.0


class Loop:
    """One loop: `start` takes over, `tick` runs one tick, `run` runs ticks until the loop is stopped."""

    spark: SparkSession
    stored: Stored
    ledgers: Ledgers
    clock: LoopClock
    state: LoopState
    steps: Steps

    def __init__(self, settings: Settings, on_tick: Callable[[Tick], None] | None = None) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.sending = threading.Lock()
        """Held while the publish step sends, until the results are appended. The timed lane sends without it: see HandOver.end."""
        self.on_tick = on_tick
        self.health = Health(lambda: self.clock.now())
        self.superseded_by: int | None = None
        self._serving: Serving | None = None
        self._tick = Tick()
        self._presence = Presence(settings.home)
        self._started = False
        self._has_ended = False

    # ---------- start

    def start(self) -> None:
        """Goes on from the last row of `ticks`, takes the next generation, sends what is due, and decides what was left undecided.

        What takes long and doesn't depend on the loop before is done first, so that little time passes between that loop's last send and
        the first one here. Returns early if it is stopped, or another loop is in charge. Raises SeedError, DbtError.
        """
        seeds = read_seeds(self.settings.seeds)
        self.dbt = begin_dbt(self.settings, seeds)
        self.spark = start_session(self.settings)
        self.schema = schema_of(self.settings.project)
        self.rules = RulesInForce(self.settings, self.spark, self.dbt, self.health, seeds, lambda: self.steps.use_rules())
        # most of these statements read a few rows, and run once: compiling them takes seconds
        with interpreted(self.spark):
            prepare_tables(self.settings, self.spark, self.schema, self.dbt, self.rules)
            self.cluster = Cluster(self.settings.kafka_properties)
            self.leadership = Leadership(self.settings, self.cluster, self.rules, self.health, self._superseded)
            position = TakeOver(self._read, self.leadership, self._presence, self.stopping).run()
            if position is None:
                return
            self.leadership.log_state()
            self.leadership.renew_bulk_lane()
            self.state = position.caught_up()
            self.steps = assembled(self.state, self.stored, position.breakers, self.leadership, self.sending, self.stopping)
            self._apply(self.steps.decision_feed.begin(self.state))
            self._started = True
            self._serving = Serving(self.settings, self.stored, self.state.watermark)
            self._apply(self.steps.recovery.find_undecided(self.state))
            left, upto = self.state.window.undecided, self.ledgers.certain
            self._send_first()
            if left and not self.stopping.is_set():
                # what was left undecided is decided by the rules in the tables; what has come since, by the rules that are loaded below
                self._apply(replace(self.steps.decide.run(self.state, self.clock.now(), upto), counts={}, step_ms={}))
                self._apply(self.steps.recovery.find_undecided(self.state))
            if not self.stopping.is_set():
                self.rules.load()

    def _read(self) -> StartingPoint:
        position = read_starting_point(self.settings, self.spark, self.schema)
        self.stored, self.ledgers, self.clock, self.state = position.stored, position.stored.ledgers, position.stored.clock, position.state
        return position

    def _send_first(self) -> None:
        """Sends what is due before anything is decided: the first decide run may take half a minute, and may kill the process each time.

        Reports are taken in first: they show what a killed loop has sent. All this counts as the beginning of the first tick.
        """
        self._take_in()
        while not self.stopping.is_set():
            self._tick = replace(self._tick, has_more=False)
            self._publish()
            if not self._tick.has_more:
                break
        log_first_sends(self._tick)

    # ---------- one tick

    def tick(self) -> Tick:
        """Runs the steps in their order. A step that can't run now is left for a later tick, and its trouble is reported."""
        # most statements of a tick read a few rows; steps that read many generate code all the same
        with interpreted(self.spark), self._serving.tick() if self._serving else nullcontext():
            return self._run_tick()

    def _run_tick(self) -> Tick:
        self._began = self.clock.now()
        self.state, self._tick = begin(self.state, self._tick)
        if self.health.unsure and self.health.may_be_tried(LEDGERS):
            self._apply(self.steps.recovery.read_again(self.state))
        self.leadership.look()
        steps: list[Callable[[], None]] = [
            partial(self._run, self.rules),
            self._take_in,
            self._dispatch_commands,
            self._publish_before_a_long_run,
            self._decide,
            self._publish,
            self._settle,
            *[partial(self._run, feed) for feed in self.steps.feeds],
        ]
        for step in steps:
            if self.stopping.is_set():
                break
            step()
        tick = self._tick
        if (tick.did_something or self.stored.clock_was_set) and self.superseded_by is None:
            # while the state of the tables is unknown, a row could record a wrong position
            if not self.health.unsure:
                self._append_tick()
            log_tick(self.state.tick, tick)
        self._write_status("running")
        if self._serving is not None and self._serving.counts:
            commands = self.commands.progress(self.clock.now())
            known = (self.health, self.intake, commands, self.lane.waiting()[0], self.steps.outboxes)
            self._serving.measure(turn_of(self.state, self._began, self.ledgers.certain, *known))
        if self.on_tick:
            self.on_tick(tick)
        return tick

    def _take_in(self) -> None:
        self._apply(self.steps.publish.find_sent(self.state, self.clock.now()))
        for step in self.steps.intake:
            self._run(step)

    def _dispatch_commands(self) -> None:
        if self.steps.publish.knows_what_was_sent:
            self._run(self.steps.dispatch)

    def _publish_before_a_long_run(self) -> None:
        # the first decide run takes long, and a run that fails may take long each time: what is due must not wait for it
        if self.state.window.undecided and (self.steps.decide.cold or DECIDE in self.health):
            self._publish()

    def _decide(self) -> None:
        self._run(self.steps.decide)
        self.steps.sequence_feed.note(self.state)

    def _publish(self) -> None:
        self._run(self.steps.publish)

    def _settle(self) -> None:
        self._run(self.steps.write_back)
        self.steps.settle.unread = self._tick.unread
        self._run(self.steps.settle, self._began)

    def _run(self, step: Step, now: datetime | None = None) -> None:
        self._apply(step.run(self.state, now or self.clock.now()))

    def _apply(self, result: StepResult) -> None:
        """Applies the result of a step to the state, and handles its failure."""
        self.state, self._tick = reduce(self.state, self._tick, result, self.health)
        if result.failure is not None or result.superseded_by is not None:
            self.steps.publish.hand_over.withdraw_all()
        if result.superseded_by is not None:
            self._superseded(result.superseded_by)
        elif isinstance(result.failure, TakenOverError):
            self._superseded(result.failure.by)
        elif result.failure is not None:
            self._apply(self.steps.recovery.after(self.state, result.failure))

    def _append_tick(self) -> None:
        try:
            self.stored.append(self.state)
            self.steps.kept()
        except Exception as error:
            self._apply(StepResult(self.state, failure=error))

    def _write_status(self, state: str) -> None:
        """Writes the status file. A full disk must not end the loop."""
        try:
            lane = self.lane.waiting()
            status = status_of(state, self.state, self._tick, self.ledgers.batch, self.health, self.clock, lane)
            write_status(self.settings.status_file, status)
            self.health.recovered(STATUS)
        except OSError as error:
            self.health.failed(STATUS, Reason(f"{self.settings.status_file} can't be written: {error}"))

    def _superseded(self, generation: int) -> None:
        """Ends this loop: another one is in charge."""
        self.superseded_by = generation
        self.stopping.set()
        event(log, logging.ERROR, "loop_superseded", generation=self.ledgers.generation, superseded_by=generation)

    # ---------- until it is stopped

    def run(self, *, until_idle: bool = False, at_most: float | None = None) -> bool:
        """Runs ticks until `stopping` is set; with until_idle, until nothing waits and nothing came for idle_for_seconds.

        at_most: ends after this many seconds in any case. Returns whether it was idle in the end.
        """
        began = logged = idle_since = time.monotonic()
        idle = False
        while not self.stopping.is_set():
            if at_most is not None and time.monotonic() - began >= at_most:
                waits_for = what_it_waits_for(self.state.window, self.health, self.waiting)
                event(log, logging.INFO, "time_limit_reached", seconds=at_most, waits_for=waits_for)
                break
            if until_idle and time.monotonic() - logged >= _SAYS_EVERY:
                logged = time.monotonic()
                event(log, logging.INFO, "idle_not_reached", waits_for=what_it_waits_for(self.state.window, self.health, self.waiting))
            tick = self.tick()
            if tick.did_something or self.health or self.state.window.paused:
                idle_since = time.monotonic()
            if until_idle and time.monotonic() - idle_since >= self.settings.idle_for_seconds:
                if (by := self.ledgers.superseded_by()) is not None:
                    self._superseded(by)  # while it was frozen in the middle of a tick
                    break
                if self.waiting() == 0:
                    event(log, logging.INFO, "idle_reached", seconds=self.settings.idle_for_seconds)
                    idle = True
                    break
                idle_since = time.monotonic()
            if not tick.has_more and not (tick.counts.get("events") or tick.counts.get("failed")):
                if self.steps.decide.cold and not tick.did_something and self.health.may(DECIDE) and self.health.may(LEDGERS):
                    # nothing waits, so this is the time for the first decide run, without inputs: it takes some seconds longer than others
                    self._apply(replace(self.steps.decide.decide_up_to(self.state, self.ledgers.certain), counts={}, step_ms={}))
                self.stopping.wait(self._pause())
        self.close()
        return idle

    def _pause(self) -> float:
        """Seconds to sleep: until the next look into the wheel, but at most `poll_seconds`, after which Kafka is asked for new records."""
        poll, next_due = self.settings.poll_seconds, self.state.window.next_due
        return max(0.01, poll if next_due is None else min(poll, (next_due - self.clock.now()).total_seconds()))

    def close(self) -> None:
        """Ends the loop: records the last results and its end in the tables, the status file and the log, and closes its clients."""
        if self._started:
            try:
                # a newer loop that has taken the generation in Kafka waits for these results before it takes the tables
                self.steps.publish.end()
            except Exception as error:
                event(log, logging.ERROR, "send_results_lost", reason=error)
            self._append_end()
        self.finish()
        if self._started:
            self.steps.close()
        self._presence.end()
        if self._serving is not None:
            self._serving.close()
            self._serving = None

    def _append_end(self) -> None:
        """Appends the last row, for which a later loop waits, with what has settled and no row says yet. Refused if another took over."""
        if self._has_ended or self.health.unsure or self.steps.publish.has_unrecorded:
            return
        try:
            with interpreted(self.spark):
                self.stored.append(replace(self.state.of_kind("end"), settled=dict(self.steps.settle.unrecorded), unrecorded_since=None))
        except Exception as error:
            event(log, logging.DEBUG, "end_not_recorded", reason=error)

    def finish(self) -> None:
        """Records in the status file and in the log that the loop has ended."""
        if self._has_ended:
            return
        self._has_ended = True
        if not self._started:
            # the status file belongs to another loop
            event(log, logging.INFO, "start_aborted")
            return
        self._write_status("stopped")
        event(log, logging.INFO, "loop_ended", generation=self.ledgers.generation, ticks=self.state.tick)

    # ---------- for callers beside the loop

    @property
    def intake(self) -> Intake:
        """What reads the sources."""
        return self.steps.take_in.intake

    @property
    def commands(self) -> Commands:
        """Operators' commands."""
        return self.steps.dispatch.commands

    @property
    def lane(self) -> TimedLane:
        """The timed lane."""
        return self.steps.publish.hand_over.lane

    def look_now(self, since: datetime | None = None) -> None:
        """Has the next tick look into the wheel, from `since` on: for a caller that has added deliveries itself."""
        self.steps.publish.hand_over.forget()
        self._apply(StepResult(replace(self.state, window=self.state.window.kept_under(since).look_now())))

    def waiting(self) -> int:
        """How many deliveries are open, due or not, or held, plus how many messages commands have still to issue."""
        return self.commands.waiting + self.stored.open_deliveries()


__all__ = ["Loop", "Tick"]
