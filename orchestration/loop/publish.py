"""The step that publishes: sends what is due, tries paused destinations again, and moves the floors over what is closed.

Longer than other modules, as one place has to know what was sent and has no result yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orchestration.clock import LoopClock
from orchestration.logs import event
from orchestration.loop.circuit_breakers import CircuitBreakers
from orchestration.loop.due import Due, Waiting
from orchestration.loop.hand_over import HandOver
from orchestration.loop.health import FIRST_PAUSE, LEDGERS, SENDS, Health, Reason
from orchestration.loop.hold import hold
from orchestration.loop.lane_results import LaneStop
from orchestration.loop.leadership import Leadership
from orchestration.loop.missing_topics import MissingTopics
from orchestration.loop.outcomes import Outcomes
from orchestration.loop.published import Published, ResultsLostError, Stop, Unrecorded, UnrecordedError
from orchestration.loop.read_back import ReadBack
from orchestration.loop.sending import HORIZON
from orchestration.loop.state import LoopState
from orchestration.loop.steps import BULK, TIMED, Sent, StepReport, StepResult
from orchestration.loop.undecided import Undecided
from orchestration.loop.window import PausedDestination, SendWindow
from publisher import MISSING_TOPIC, SUPERSEDED_CODE
from publisher import SettingsError as PublisherSettingsError

log = logging.getLogger(__name__)


@dataclass
class Publish:
    """The publish step: hands over to the timed lane, has the bulk lane send what is due, and keeps the floors.

    sending: held while this step sends, until the results are appended: if the process ends in between, the next loop reads them back. The
    timed lane sends without it: before the process ends, HandOver.end must have returned.
    read_back: finds out what was sent without a result; until that is known, nothing is sent, or not to destinations that can't be read.
    unrecorded: results that could not be appended. Until they are, nothing is sent: without them, deliveries would be sent twice.
    """

    leadership: Leadership
    breakers: CircuitBreakers
    undecided: Undecided
    missing_topics: MissingTopics
    health: Health
    clock: LoopClock
    sending: threading.Lock
    stopping: threading.Event
    hand_over: HandOver
    read_back: ReadBack
    unrecorded: Unrecorded | None = None
    _next_row: datetime | None = None

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """Notes what the timed lane has done; looks into the wheel, if it is time, and sends what is due there, or hands it over."""
        return self._with_unrecorded_since(self._run(state, now), now)

    def find_sent(self, state: LoopState, now: datetime) -> StepResult:
        """Finds out what was sent without a result in the ledger, and records it; does nothing if there is nothing.

        Before reports are taken in: one that names no delivery answers a send whose result is in an earlier batch. If it can't be found out
        now, reports are taken in all the same.
        """
        report = StepReport(state)
        is_found = self.unrecorded is None and not self.read_back.is_due
        if is_found or not self.health.may(LEDGERS) or not self.health.may(SENDS):
            return report.result()
        failure: Exception | None = None
        try:
            if self.leadership.in_charge or self.leadership.take(report):
                # without `sending`: a process that ends meanwhile leaves to the next start what this does
                self._record_sent(report, now)
        except PublisherSettingsError:
            raise
        except Exception as error:
            self._not_recorded(report, error, now)
            failure = error
        return self._with_unrecorded_since(report.result(failure), now)

    def _run(self, state: LoopState, now: datetime) -> StepResult:
        report = StepReport(state)
        if not self.health.may(LEDGERS) or not self.health.may(SENDS):
            return report.result()
        try:
            self._note_lane(report, now)
        except Exception as error:
            return report.result(error)
        if report.superseded_by is not None or report.has_failed(SENDS) or not report.state.window.is_due(now):
            return report.result()
        try:
            if not self.leadership.in_charge and not self.leadership.take(report):
                return report.result()
        except PublisherSettingsError:
            raise
        except Exception as error:
            return report.result(error)
        with self.sending:
            return self._send(report, now)

    def _send(self, report: StepReport, now: datetime) -> StepResult:
        began = time.monotonic()
        ledgers = self.undecided.stored.ledgers
        try:
            if not self._record_sent(report, now):
                return report.result()
            hold(report, now, self.breakers, self.hand_over, self.leadership.bulk_lane, self.read_back.unread)
            before = ledgers.batch
            takes_sends = self.publish_rows(report, now)
            # nothing is handed over while a probe goes out, as its result is read at the end of this step; nor while sends fail: the bulk
            # lane finds out whether Kafka takes them again
            hands_over = takes_sends and not self.breakers.lets_out and SENDS not in self.health
            handed = hands_over and self.hand_over.look(report, now, self.breakers.open)
            if takes_sends and (handed or self.publish_due(report, now)) and not self.stopping.is_set():
                self.publish_paused(report, now)
            self._see_probes(report, before, now)
        except Exception as error:
            self._not_recorded(report, error, now)
            return report.result(error)
        if any(report.counts.get(outcome) for outcome in ("delivered", "failed", "unknown")):
            report.took("publish", began)
        report.recovered(LEDGERS)
        with self.breakers.of(report):
            next_look = self.breakers.next_look
        report.change(window=report.state.window.next_look(next_look).next_look(self._next_row))
        return report.result()

    def end(self) -> None:
        """Ends the timed lane, and appends what is not appended yet. Raises AppendError: the next loop finds out what has no result."""
        try:
            self.hand_over.end()
        finally:
            self.record_late()

    @property
    def has_unrecorded(self) -> bool:
        """Whether something was sent whose result is not in the ledger, or may have been: then the next start reads it back."""
        return not self.knows_what_was_sent or self.hand_over.lane.unrecorded_since() is not None

    @property
    def knows_what_was_sent(self) -> bool:
        """Whether orders about messages may be written: not while one of them may have been sent without a result."""
        return self.unrecorded is None and self.read_back.earliest is None

    def unrecorded_since(self, now: datetime) -> datetime:
        """Sends from this moment on may have no result in the ledger; earlier ones have. By the wall clock, as records in Kafka are.

        now: a moment before the call.
        """
        pending = None if self.unrecorded is None else self.unrecorded.since
        since = min(filter(None, [now, pending, self.hand_over.lane.unrecorded_since()])) - self.clock.ahead
        return min(filter(None, [since, self.read_back.earliest]))

    def _not_recorded(self, report: StepReport, error: Exception, now: datetime) -> None:
        """Notes that sends may have no result, after an error."""
        self.hand_over.forget()
        if isinstance(error, UnrecordedError):
            if self.unrecorded is None:
                self.unrecorded = error.unrecorded
                self._postpone(report, error.unrecorded.published, now)
        else:
            # the step may have sent anything, and results that could not be appended before may be lost
            self.read_back.after(now if self.unrecorded is None else self.unrecorded.since)
            self.unrecorded = None if isinstance(error, ResultsLostError) else self.unrecorded
        report.change(window=report.state.window.look_now())

    def _record_sent(self, report: StepReport, now: datetime) -> bool:
        """Records what was sent without a result. Returns whether it is known then, and this loop is still in charge."""
        ledgers = self.undecided.stored.ledgers
        # a newer loop that can't reach Kafka has fenced nothing there, but has its row in the tables
        report.superseded_by = ledgers.superseded_by()
        if report.superseded_by is not None:
            return False
        before = ledgers.batch
        self._record_late(report)
        if not self.read_back.run(report, now):
            return False
        self._see_probes(report, before, now)
        return True

    def _with_unrecorded_since(self, result: StepResult, now: datetime) -> StepResult:
        return replace(result, state=replace(result.state, unrecorded_since=self.unrecorded_since(now)))

    def record_late(self) -> None:
        """Appends the results that could not be appended before. Raises AppendError."""
        if self.unrecorded is not None:
            self.leadership.bulk_lane.record(self.unrecorded, self.clock.now)
            self.unrecorded = None

    def _record_late(self, report: StepReport) -> None:
        if self.unrecorded is not None:
            self.record_late()
            report.recovered(LEDGERS)
            self.undecided.find(report)

    def _note_lane(self, report: StepReport, now: datetime) -> None:
        """Adds what the timed lane has done to the report. Raises the error with which its results could not be recorded."""
        done = self.hand_over.lane.take_done()
        # first: if what follows fails, the sends of unknown outcome would be forgotten, and never sent again
        self._postpone(report, done, done.unknown_since or now)
        _count(report, done)
        report.has_sent(TIMED, Sent(done.delivered, done.lateness))
        if done.failed:
            self.undecided.find(report)
            report.has_more = True
        if done.delivered and all(stop.topic is not None for stop in done.stops):
            report.recovered(SENDS)
        if done.stops:
            self._lane_stopped(report, done.stops, now)

    def _lane_stopped(self, report: StepReport, stops: Iterable[LaneStop], now: datetime) -> None:
        """Handles destinations that accepted nothing from the timed lane; topic None: Kafka as a whole accepted nothing."""
        self.hand_over.forget()
        stopped = [Stop(stop.topic, stop.reason, stop.error, stop.code == SUPERSEDED_CODE, stop.code in MISSING_TOPIC) for stop in stops]
        reasons = self._reasons(report, stopped)
        if reasons is None:
            report.change(window=report.state.window.look_now())
            return
        for topic, reason in reasons.items():
            # the loop's floor, not the earliest due time of what the lane had: older messages to this topic may wait for the bulk lane
            report.change(window=self._paused(report.state.window, topic, reason, report.state.window.floor, now))

    def _see_probes(self, report: StepReport, before: int, now: datetime) -> None:
        with self.breakers.of(report):
            self.breakers.sent(before, now)

    # ---------- what stays in order: rows of outboxes, and messages that have waited for an earlier one

    def publish_rows(self, report: StepReport, now: datetime) -> bool:
        """Sends what is due and stays in order, if the timed lane sends the rest. Returns whether Kafka takes sends."""
        if not self.hand_over.look_ahead:
            return True
        if not self._keeps_order(report):
            if report.state.window.unpublished_since is not None:
                # the rules have changed: from now on, the timed lane sends what was left in its order
                self.hand_over.forget()
                report.change(window=replace(report.state.window, unpublished_since=None).look_now())
            self._next_row = None
            return True
        followers = self.leadership.rules.keeps_sequences
        what = report.state.due(now, now, self.hand_over.in_lane(), in_order=True, followers=followers)
        waiting = self.leadership.bulk_lane.waiting(what)
        self._next_row = waiting.next_due
        stops: dict[str, Reason] | None = {}
        if waiting.rows:
            published = self.leadership.bulk_lane.run(what, self.clock.now, waiting)
            self._count(report, published, now)
            stops = self._stops_of(report, published)
            self._postpone(report, published, now)
        self._note_unpublished(report, what, waiting)
        for topic, reason in (stops or {}).items():
            report.change(window=self._paused(report.state.window, topic, reason, what.floor, now))
        if stops is None:
            report.change(window=report.state.window.look_now())
        return stops is not None

    def _note_unpublished(self, report: StepReport, what: Due, waiting: Waiting) -> None:
        """Keeps the floors under what stays in order and is open still, of what a step has looked for.

        Also if the rules that kept it so are gone: what was left out of the step would else be behind the floor.
        """
        rows = waiting.rows if self._keeps_order(report) else waiting.ordered
        since = self.leadership.bulk_lane.open_since(what) if rows else None
        report.change(window=replace(report.state.window, unpublished_since=since))

    def _keeps_order(self, report: StepReport) -> bool:
        # those of the seeds, too: the first rows may be in the tables before the state knows the outbox, and the floor must not pass them
        rules = self.leadership.rules
        return bool(report.state.outboxes) or rules.has_outboxes or rules.keeps_sequences

    # ---------- what is due

    def publish_due(self, report: StepReport, now: datetime) -> bool:
        """Sends what is due, except to paused destinations, and moves the floor over it. Returns whether Kafka takes sends."""
        what = report.state.due(now, now, self.hand_over.in_lane())
        waiting = self.leadership.bulk_lane.waiting(what)
        window = replace(report.state.window, next_due=waiting.next_due or now + HORIZON)
        report.change(window=window)
        if waiting.rows == 0:
            report.change(window=replace(window, unpublished_since=None).without_unknown_before(now).moved(self.hand_over.open_since(now)))
            return True
        published = self.leadership.bulk_lane.run(what, self.clock.now, waiting)
        self._count(report, published, now)
        # first: if one of the queries below fails, the floor must still not pass what is of unknown outcome
        self._postpone(report, published, now)
        self._note_unpublished(report, what, waiting)
        stops = self._stops_of(report, published)
        if not published.stops:
            # this step has read the sends of unknown outcome that may be sent again by now
            report.change(window=report.state.window.without_unknown_before(now))
        if stops is None:
            # tried again as soon as the pause of "sends" is over
            report.change(window=report.state.window.look_now())
            return False
        report.change(window=self._after(report.state.window, what, published, stops, now))
        return True

    def _after(self, window: SendWindow, what: Due, published: Published, stops: dict[str, Reason], now: datetime) -> SendWindow:
        for topic, reason in stops.items():
            window = self._paused(window, topic, reason, what.floor, now)
        if what.undecided_after is None:
            window = window.moved(self.hand_over.open_since(published.upto))
        return window if published.complete else window.look_now()

    def _paused(self, window: SendWindow, topic: str, reason: Reason, floor: datetime, now: datetime) -> SendWindow:
        """With the pause of a destination that took nothing. floor: no open delivery to it was due before."""
        self.hand_over.withdraw(topics=[topic])
        until = now + FIRST_PAUSE
        event(log, logging.WARNING, "destination_paused", topic=topic, retry_at=until, error=reason.error, reason=reason.text)
        before = window.paused.get(topic)
        paused = PausedDestination(reason, until, floor=floor if before is None else min(floor, before.floor))
        return window.with_paused(topic, paused)

    def _count(self, report: StepReport, published: Published, now: datetime) -> None:
        """Adds what was sent to the counts of the step."""
        _count(report, published)
        report.has_sent(BULK, Sent(published.delivered, published.lateness_ms))
        if published.failed:
            report.change(window=report.state.window.awaiting(published.failed, now))
        report.has_more = report.has_more or not published.complete or published.failed > 0

    def _postpone(self, report: StepReport, sent: Outcomes, since: datetime) -> None:
        """Notes the sends of unknown outcome, of which the first began at `since`: the next step finds out what became of them."""
        if sent.open_since and sent.open_until:
            self.read_back.after(since)
            report.change(window=report.state.window.with_unknown(sent.open_since, sent.open_until).look_now())
            event(log, logging.WARNING, "send_outcomes_unknown", deliveries=sent.unknown, retry_at=sent.open_until)

    # ---------- destinations that are paused

    def publish_paused(self, report: StepReport, now: datetime) -> None:
        """Tries paused destinations again, all in one step: first with little of what waits for each, then, step by step, with the rest.

        A destination for which nothing waits any more is resumed.
        """
        paused = report.state.window.paused
        tried = report.state.window.worth_a_try(now)
        for topic in [topic for topic in tried if topic in self.read_back.unread]:
            unread = paused[topic].failed(self.read_back.unread[topic].reason, now)
            report.change(window=report.state.window.with_paused(topic, unread))
        windows = [paused[topic].window(topic, now) for topic in tried if topic not in self.read_back.unread]
        if not windows:
            return
        what = Due.within(windows, now, report.state.undecided_after, self.hand_over.in_lane(), report.state.window.lowest_floor)
        waiting = self.leadership.bulk_lane.waiting(what)
        upto, stops = what.upto, dict[str, Reason]()
        if waiting.rows:
            published = self.leadership.bulk_lane.run(what, self.clock.now, waiting)
            self._count(report, published, now)
            found = self._stops_of(report, published)
            self._postpone(report, published, now)
            # where Kafka as a whole took nothing, each of them has failed
            stops = found if found is not None else {window.topic: paused[window.topic].reason for window in windows}
            upto = published.upto
            self._note_unpublished(report, what, waiting)
        for window in windows:
            if window.topic in stops:
                failed = report.state.window.paused[window.topic].failed(stops[window.topic], now)
                report.change(window=report.state.window.with_paused(window.topic, failed))
            elif upto < window.floor:
                # there was no room for it in this step
                report.has_more = True
            else:
                self._go_on_with(report, window.topic, min(window.upto, upto), now)

    def _go_on_with(self, report: StepReport, topic: str, upto: datetime, now: datetime) -> None:
        """After an attempt that sent everything up to `upto` to a paused destination: the rest is next, if there is any."""
        after = report.state.window.after_success(topic, upto, now, left_out=report.state.undecided_after is not None)
        report.has_more = report.has_more or upto < now
        if topic not in after.paused:
            event(log, logging.WARNING, "destination_resumed", topic=topic)
        report.change(window=after)

    # ---------- what takes no sends

    def _stops_of(self, report: StepReport, published: Published) -> dict[str, Reason] | None:
        """The destinations that took nothing, and why; None if Kafka as a whole took nothing, or this loop is not in charge."""
        reasons = self._reasons(report, published.stops)
        if reasons is not None:
            report.recovered(SENDS)
        return reasons

    def _reasons(self, report: StepReport, stops: Sequence[Stop]) -> dict[str, Reason] | None:
        """Why destinations took nothing; None if Kafka as a whole took nothing, or this loop is not in charge, which is reported."""
        for stop in stops:
            if stop.is_superseded:
                report.superseded_by = self.leadership.newest()
                return None
            if stop.topic is None:
                report.failed(SENDS, Reason(f"nothing can be sent, and no attempts are charged: {stop.reason}", stop.error))
                return None
        return self.missing_topics.reasons(stops, report.state.window, self.clock.now())


def _count(report: StepReport, sent: Outcomes) -> None:
    for name, rows in sent.counts.items():
        report.count(name, rows)
