"""A start takes over from the loop before: the generation in Kafka first, then a row in each ledger. docs/decisions/0040 says why."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestration.logs import event
from orchestration.loop.leadership import Leadership
from orchestration.loop.starting_point import StartingPoint
from orchestration.loop.state import LoopState
from orchestration.presence import Presence
from orchestration.tables.ledgers import AppendError, TakenOverError

log = logging.getLogger(__name__)

# The pauses between the attempts of a start to take over from a loop that is still writing, in seconds.
_PAUSES = (0.1, 0.2, 0.5, 1, 2, 5)

# How long a start waits until the older loop, which can't send any more, has appended its last results; and the time between two checks, in
# seconds.
_LAST_ROWS = 15.0
_LAST_ROWS_POLL = 0.2


@dataclass
class TakeOver:
    """Takes over from the last loop. read: reads the position of that loop."""

    read: Callable[[], StartingPoint]
    leadership: Leadership
    presence: Presence
    stopping: threading.Event

    def run(self) -> StartingPoint | None:
        """Takes the next generation: in Kafka, so that an older loop stops sending, then in each ledger, so that it stops appending.

        In between the older loop may append the results of its last sends, which would have to be read back otherwise.

        If Kafka gives no answer, the tables are taken all the same; the loop then takes the generation in Kafka before its first send. The
        row in `ticks` comes first, so that an older loop whose append is refused can read there which loop is in charge. What it appends to
        the others in between does no harm: their ends are read again. Returns the position from which this loop goes on; None if it was
        stopped, or another loop is in charge.
        """
        for pause in (*_PAUSES, None):
            position = self._read()
            self.leadership.in_charge = False
            if not self.stopping.is_set():
                self.leadership.take_first()
            if self.stopping.is_set():
                return None
            if self.leadership.in_charge and self._wait_for_last_rows(position):
                before, position = self.leadership.generation, self._read()
                self.leadership.in_charge = self.leadership.generation == before
            try:
                position.stored.append(_begun(position))
                break
            except AppendError:
                # another loop has written in the meantime, or is starting just now
                if pause is None:
                    raise
            time.sleep(pause)
        self.presence.show(self.leadership.generation)
        for ledger in ("events", "publish_results"):
            if not self._append_start(position, ledger):
                return None
        return position

    def _read(self) -> StartingPoint:
        position = self.read()
        self.leadership.stored = position.stored
        return position

    def _wait_for_last_rows(self, position: StartingPoint) -> bool:
        """Waits until the loop before, which can't send any more, has appended its results; returns whether it may have appended any.

        Doesn't wait if that loop has ended already. The wait is bounded, as that loop may be frozen, or was killed on another machine.
        """
        last = position.last
        if last is None or last["kind"] == "end" or self.presence.has_ended(last["generation"]):
            return False
        before = last["generation"]
        event(log, logging.INFO, "older_loop_awaited", generation=before, at_most_s=_LAST_ROWS)
        deadline = time.monotonic() + _LAST_ROWS
        ledgers = position.stored.ledgers
        while not (self.presence.has_ended(before) or ledgers.has_ended(before) or self.stopping.is_set()):
            if time.monotonic() >= deadline:
                event(log, logging.WARNING, "older_loop_timed_out", generation=before)
                break
            time.sleep(_LAST_ROWS_POLL)
        return True

    def _append_start(self, position: StartingPoint, ledger: str) -> bool:
        """Takes over in a ledger: an older loop may still append there until then. Returns whether this loop is still in charge."""
        try:
            for pause in (*_PAUSES, None):
                try:
                    position.stored.seal(ledger, position.state)
                    break
                except AppendError as error:
                    if pause is None or isinstance(error, TakenOverError):
                        raise
                time.sleep(pause)
                # the older loop has appended once more: read what it has appended
                position.stored.ledgers.read_end()
        except TakenOverError as error:
            # another start has come between this one's row in `ticks` and this one
            self.leadership.superseded(error.by)
            return False
        return True


def _begun(position: StartingPoint) -> LoopState:
    """The state of the row `start`: this loop sends from now on by its wall clock, which may be behind that of the last loop."""
    state = position.state.of_kind("start")
    return replace(state, unrecorded_since=min(filter(None, [state.unrecorded_since, position.stored.clock.wall()])))
