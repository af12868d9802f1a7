"""Time: UTC, aware. The loop's clock never runs backwards, and has whole milliseconds. Between Python and SQL, times are numbers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def whole_ms(moment: datetime) -> datetime:
    """The time, cut to whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def wall_clock() -> datetime:
    """The machine's time, UTC, whole milliseconds."""
    return whole_ms(datetime.now(UTC))


def moment_of(micros: int) -> datetime:
    """The time `micros` microseconds after the beginning of 1970. Out of Python's range: the nearest time in it."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)


def date_of(days: int) -> date:
    """The day `days` days after 1970-01-01. Out of Python's range: the nearest day in it."""
    try:
        return EPOCH.date() + timedelta(days=days)
    except OverflowError:
        return date.max if days > 0 else date.min


def literal(moment: datetime) -> str:
    """A moment in SQL: as a number, which is the same in every time zone."""
    return f"timestamp_micros({(moment - EPOCH) // timedelta(microseconds=1)})"


def parse_moment(text: str) -> datetime:
    """A moment as a person writes it: ISO 8601, in UTC unless it has a zone. Raises ValueError, OverflowError."""
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def parse_duration(text: str) -> timedelta:
    """A duration as a person writes it: `500ms`, `90s`, `5m`, `2h`, `1d`, up to a year. Raises ValueError."""
    parsed = re.fullmatch(r"(\d{1,11})(ms|[smhd])", text.strip())
    try:
        duration = timedelta(**{_UNITS[parsed[2]]: int(parsed[1])}) if parsed else None
    except OverflowError:
        duration = None
    if duration is None or duration > timedelta(days=365):
        raise ValueError(text)
    return duration


class LoopClock:
    """Loop time = max(wall clock, last loop time + time elapsed since).

    If the wall clock is set back, loop time goes on from where it was, so that no message is sent early and the loop doesn't stand still.
    If the wall clock jumps ahead, loop time follows it.
    """

    def __init__(
        self,
        last: datetime | None = None,
        *,
        wall: Callable[[], datetime] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """last: the loop time of the last row of `ticks`, from which a start goes on."""
        self._wall = wall
        self._monotonic = monotonic
        self._last = max(last, wall()) if last else wall()
        self._at = monotonic()
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Loop time, UTC, whole milliseconds."""
        # several threads call this: without the lock, one with an earlier reading could set the time back
        with self._lock:
            # The wall clock is read first: else the time between the two readings would be counted twice, and messages would be sent early.
            wall = self._wall()
            at = self._monotonic()
            # kept exact: if it were cut at each call, time would stand still for a caller that asks more than once in a millisecond
            self._last = max(wall, self._last + timedelta(seconds=at - self._at))
            self._at = at
            return whole_ms(self._last)

    def wall(self) -> datetime:
        """The wall clock, which may be set back."""
        return self._wall()

    @property
    def ahead(self) -> timedelta:
        """How far loop time is ahead of the wall clock, or a little more: records in Kafka have the time of the wall clock."""
        # The wall clock is read first: else this could be too little, and sends would be looked for from too late a moment on.
        wall = self._wall()
        return max(timedelta(), self.now() - wall)
