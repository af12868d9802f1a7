"""Time: UTC, aware. The loop's clock never runs backwards, and has whole milliseconds. Between Python and SQL, times are numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def whole_ms(moment: datetime) -> datetime:
    """The same moment without what is smaller than a millisecond."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def wall_clock() -> datetime:
    """The machine's time, UTC, whole milliseconds."""
    return whole_ms(datetime.now(UTC))


def moment_of(micros: int) -> datetime:
    """The moment so many microseconds after 1970 began; the nearest that Python can hold, where it can't hold that one."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)


def date_of(days: int) -> date:
    """The day so many days after 1970 began; the nearest that Python can hold, where it can't hold that one."""
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
    said = re.fullmatch(r"(\d{1,11})(ms|[smhd])", text.strip())
    duration = timedelta(**{_UNITS[said[2]]: int(said[1])}) if said else None
    if duration is None or duration > timedelta(days=365):
        raise ValueError(text)
    return duration


class LoopClock:
    """Loop time = max(wall clock, last loop time + time elapsed since).

    A wall clock that is set back neither sends a message early nor lets the loop wait: time goes on from where it was.
    One that jumps ahead is followed.
    """

    def __init__(
        self,
        last: datetime | None = None,
        *,
        wall: Callable[[], datetime] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """last: loop time of the last row in `ticks`, where a start goes on from."""
        self._wall = wall
        self._monotonic = monotonic
        self._last = max(last, wall()) if last else wall()
        self._at = monotonic()

    def now(self) -> datetime:
        """Loop time, UTC, whole milliseconds."""
        at = self._monotonic()
        # kept exact: cut at each call, time would stand still for a caller that asks more than once in a millisecond
        self._last = max(self._wall(), self._last + timedelta(seconds=at - self._at))
        self._at = at
        return whole_ms(self._last)
