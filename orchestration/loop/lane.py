"""The timed lane: a thread with one producer that stays open, which sends each delivery at its time.

The loop hands rows of `ready` over ahead of their time. A row belongs to the lane until its result is in the ledger, or it was withdrawn:
the bulk lane (sending.py) leaves it alone until then. What the lane holds is in memory only; after a crash, the next start finds it in
`ready` again. This module knows neither Spark nor the ledgers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from orchestration.clock import EPOCH
from orchestration.loop.lane_results import Done, LaneStop, earliest, moment
from orchestration.loop.lane_rows import Rows, any_of, every, is_any
from orchestration.loop.lane_schedule import IS_PACED, Schedule
from publisher import READY, RESULTS, STOPPED

BREAKER_KEY = "breaker_key"

HANDED: pa.Schema = READY.append(pa.field(BREAKER_KEY, pa.string())).append(pa.field(IS_PACED, pa.bool_()))
"""The columns of what is handed over."""

# How long results wait for others before they are recorded, in seconds.
_GATHERS = 0.3

# The most rows that are sent at once: what is due next waits for them.
_AT_ONCE = 10_000

Send: TypeAlias = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Sends rows (READY) and returns their results (RESULTS), `stopped` ones among them. Raises nothing."""

Record: TypeAlias = Callable[[pa.Table, list[int]], None]
"""Appends results to the ledger, if they are not there yet; adds the batch of the attempt to the list. Raises any error."""


@dataclass
class TimedLane:
    """The lane of one loop: a thread that sends (`lane`), and one that records (`lane-results`).

    The loop's thread calls its methods; `end` is also called by the thread that ends the process after a signal, at the same time. Only
    `withdraw`, `finish_send`, `held` and `end` wait for Kafka.

    now_ms: the loop's clock, in epoch milliseconds. most_rows, most_bytes: what may be held. longest_unrecorded: if there are results, and
    for longer than this, in seconds, none was recorded, nothing more is sent until they are: an append waits for those of the loop's steps.
    """

    send: Send
    record: Record
    now_ms: Callable[[], int]
    most_rows: int
    most_bytes: int
    longest_unrecorded: float
    _waiting: Schedule = field(default_factory=Schedule)
    _sending: pa.RecordBatch | None = None
    _sending_since: datetime | None = None
    """When these rows were taken out to be sent."""
    _unrecorded: list[pa.Table] = field(default_factory=list)
    _unrecorded_since: float = 0.0
    """Since when the first of them waits, or when the last append ended, if that was later: a monotonic time."""
    _attempt: tuple[int, list[int]] | None = None
    """A failed attempt to record: how many of `_unrecorded`, and the batches that were tried. The next attempt records exactly these."""
    _error: Exception | None = None
    """The error of that attempt, until it has been raised in the loop's thread."""
    _is_stopped: bool = False
    """Whether Kafka as a whole took nothing, and the loop doesn't know it yet."""
    _is_held: bool = False
    _ended: bool = False
    _done: Done = field(default_factory=Done)
    _threads: list[threading.Thread] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    """Guards all of these fields."""
    _recording: threading.Lock = field(default_factory=threading.Lock)
    """Held while results are recorded."""

    # ---------- what the lane has

    def ids(self) -> set[str]:
        """The delivery ids of all that the lane has: that waits, is being sent, or was sent without its result being in the ledger."""
        with self._changed:
            return {name for rows in self._all() for name in rows.column("delivery_id").to_pylist()}

    def oldest(self) -> datetime | None:
        """The earliest due time of all that the lane has, and of what `take_done` is yet to return as open: no floor may pass it."""
        with self._changed:
            unsent = [stop.since for stop in self._done.stops]
            return min(filter(None, [*map(earliest, self._all()), *unsent, self._done.open_since]), default=None)

    def waiting(self) -> tuple[int, datetime | None]:
        """How many rows wait for their time, and when the next of them is to be sent."""
        with self._changed:
            return self._waiting.rows, self._waiting.next

    def room(self) -> tuple[int, int]:
        """How many more rows and bytes the lane takes; none while nothing can be sent or recorded."""
        with self._changed:
            if self._is_halted or self._ended:
                return 0, 0
            has = list(self._all())
            return max(0, self.most_rows - sum(rows.num_rows for rows in has)), max(0, self.most_bytes - sum(rows.nbytes for rows in has))

    def _are_unrecorded(self, results: list[pa.Table]) -> bool:
        with self._changed:
            return any(one is other for one in results for other in self._unrecorded)

    @property
    def has_unrecorded(self) -> bool:
        """Whether something was sent whose result is not in the ledger."""
        with self._changed:
            return bool(self._unrecorded)

    def unrecorded_since(self) -> datetime | None:
        """When the first of the sends without a result began, or of those of unknown outcome that the loop has not asked for yet."""
        with self._changed:
            sent = [moment(pc.min(results.column("sent_at"))) for results in self._unrecorded]
            return min(filter(None, [*sent, self._sending_since, self._done.unknown_since]), default=None)

    @property
    def _is_halted(self) -> bool:
        return self._is_stopped or self._attempt is not None

    def _all(self) -> Iterator[Rows]:
        yield from self._waiting
        if self._sending is not None:
            yield self._sending
        yield from self._unrecorded

    # ---------- what the loop does

    def hand_over(self, rows: pa.Table) -> None:
        """Takes rows (HANDED). The caller has made sure that the lane has none of them, and has room."""
        handed = rows.select(HANDED.names).cast(HANDED)
        with self._changed:
            self._waiting.add(handed, self._now())
            if self._waiting.rows and not self._threads:
                self._start()
            self._changed.notify_all()

    def withdraw(self, *, ids: Collection[str] = (), topics: Collection[str] = (), breakers: Collection[str] = ()) -> int:
        """Takes back what waits: these deliveries, what goes to these topics, and what is under these breaker keys. Returns how many.

        Waits for those of them that are being sent, and records results that are not in the ledger yet. Raises an error if this fails.
        """
        wanted = {"delivery_id": ids, "topic": topics, BREAKER_KEY: breakers}
        values = {name: pa.array(list(chosen), pa.string()) for name, chosen in wanted.items() if chosen}
        with self._changed:
            taken = self._take_back(lambda rows: any_of(rows, values))
            # results have no breaker key
            is_under_way = (self._sending is not None and is_any(self._sending, values)) or any(
                bool(breakers) or is_any(results, values) for results in self._unrecorded
            )
        if is_under_way:
            self.finish_send()
        return taken

    def withdraw_all(self) -> int:
        """Takes back all that waits, without waiting for what is being sent. Returns how many."""
        with self._changed:
            return self._take_back(every)

    def finish_send(self) -> None:
        """Waits until the current send has ended, and records its results. Raises an error if recording fails."""
        with self._changed:
            current = self._sending
            # by identity: while much is due, the next rows are being sent at once
            self._changed.wait_for(lambda: current is None or self._sending is not current)
            sent = [*self._unrecorded]
        # more than once: an attempt that is repeated records only the results that it had the first time
        while self._are_unrecorded(sent):
            self._record_now()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is sent meanwhile, and all that was sent is recorded. Raises an error if recording fails."""
        with self._changed:
            self._is_held = True
        try:
            self.finish_send()
            yield
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def take_done(self) -> Done:
        """What was done and recorded since the last call, and the destinations that took no sends.

        If results could not be recorded, the first call raises that error, and later calls try again to record them.
        """
        with self._changed:
            is_failed = self._attempt is not None
        if is_failed:
            self._record_now()
        with self._changed:
            done, self._done = self._done, Done()
            self._is_stopped = False
            self._changed.notify_all()
        return done

    def end(self) -> None:
        """Ends the lane: nothing more is sent, and what was sent is recorded. Raises an error if recording fails."""
        with self._changed:
            self._ended = True
            self._waiting = Schedule()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._error = None
        while self.has_unrecorded:
            # more than once: an attempt that is repeated records only the results that it had the first time
            self._record_now()

    # ---------- sending

    def _start(self) -> None:
        for body, name in ((self._send_in_time, "lane"), (self._record_in_time, "lane-results")):
            self._threads.append(threading.Thread(target=body, name=name, daemon=True))
            self._threads[-1].start()

    def _send_in_time(self) -> None:
        while self._send_next():
            pass

    def _send_next(self) -> bool:
        """Sends what is due next, when it is due. Returns False when the lane has ended."""
        sending: pa.RecordBatch | None = None
        try:
            sending = self._next()
            if sending is None:
                return False
            results = list(self.send(sending.select(READY.names)))
            with self._changed:
                self._note(sending, results)
        except Exception as error:
            # a bug: without this, whoever waits for the lane would wait without end
            with self._changed:
                self._stop(None, f"{type(error).__name__}: {error}", type(error).__name__, 0, sending)
        with self._changed:
            self._sending = self._sending_since = None
            self._changed.notify_all()
        return True

    def _next(self) -> pa.RecordBatch | None:
        """Waits until something is due, and returns it; None when the lane has ended."""
        with self._changed:
            while not self._ended and (seconds := self._until_due()) != 0:
                self._changed.wait(seconds)
            if not self._ended:
                self._sending_since = self._now()
                self._sending = self._waiting.take(self._sending_since, _AT_ONCE)
            return self._sending

    def _until_due(self) -> float | None:
        """Seconds until the next row is to be sent; 0: now; None: nothing is to be sent."""
        first = self._waiting.next
        waits = bool(self._unrecorded) and time.monotonic() - self._unrecorded_since > self.longest_unrecorded
        if first is None or self._is_halted or self._is_held or waits:
            return None
        return max(0.0, (first - self._now()).total_seconds())

    def _now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.now_ms())

    def _note(self, sent: pa.RecordBatch, results: list[pa.RecordBatch]) -> None:
        """Keeps the results, and takes back what can't be sent to a destination that takes nothing."""
        self._waiting.sent(self._now())
        stops = [row for some in results for row in some.to_pylist() if row["outcome"] == STOPPED]
        kept = [some.filter(pc.not_equal(some.column("outcome"), STOPPED)) for some in results]
        settled = pa.Table.from_batches([some for some in kept if some.num_rows], RESULTS)
        if settled.num_rows:
            self._unrecorded_since = self._unrecorded_since if self._unrecorded else time.monotonic()
            self._unrecorded.append(settled)
        left = sent.filter(pc.invert(pc.is_in(sent.column("delivery_id"), settled.column("delivery_id").combine_chunks())))
        for stop in stops:
            text = f"{stop['error_message']} ({stop['error_name']})"
            self._stop(stop["topic"], text, stop["error_name"], stop["error_code"], left)
            left = left.slice(0, 0) if stop["topic"] is None else left.filter(pc.not_equal(left.column("topic"), stop["topic"]))
        if left.num_rows:
            self._stop(None, f"{left.num_rows} deliveries have no result", "NO_RESULT", 0, left)

    def _stop(self, topic: str | None, text: str, error: str, code: int, unsent: pa.RecordBatch | None) -> None:
        """Takes back what waits for a destination (None: everything), and notes why. unsent: the rows of this send without a result."""

        def concerned(rows: pa.RecordBatch) -> pa.Array:
            return every(rows) if topic is None else pc.equal(rows.column("topic"), topic)

        self._is_stopped = self._is_stopped or topic is None
        back = [] if unsent is None else [unsent.filter(concerned(unsent))]
        back += self._waiting.remove(concerned)
        since = min(filter(None, map(earliest, back)), default=None)
        if since is not None:
            self._done = self._done.with_stop(LaneStop(topic, text, error, code, since))

    def _take_back(self, which: Callable[[pa.RecordBatch], pa.Array]) -> int:
        return sum(rows.num_rows for rows in self._waiting.remove(which))

    # ---------- recording

    def _record_in_time(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or (bool(self._unrecorded) and self._attempt is None))
                if self._ended:
                    return
            time.sleep(_GATHERS)
            if self._attempt is None:
                self._record()

    def _record_now(self) -> None:
        """Records the results that are there, in the loop's thread. Raises an error if that fails.

        The error of an attempt in the background is raised first, so that the loop reads again where the ledgers end before the next one.
        """
        with self._changed:
            error, self._error = self._error, None
        if error is None:
            self._record()
            with self._changed:
                error, self._error = self._error, None
        if error is not None:
            raise error

    def _record(self) -> None:
        """Records the results that are there. If that fails, nothing more is sent until it succeeds."""
        with self._recording:
            with self._changed:
                if not self._unrecorded:
                    return
                count, tried = self._attempt or (len(self._unrecorded), [])
                results = pa.concat_tables(self._unrecorded[:count])
            try:
                self.record(results, tried)
            except Exception as error:
                with self._changed:
                    self._attempt, self._error = (count, tried), error
                return
            with self._changed:
                self._attempt = None
                del self._unrecorded[:count]
                self._unrecorded_since = time.monotonic()
                self._done = self._done.with_results(results)
                self._changed.notify_all()
