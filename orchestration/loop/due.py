"""What a step sends: which rows of `ready` are meant, and the conditions by which Iceberg reads only the files that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from orchestration.clock import literal

# The longest list of values that Iceberg still compares with what a file says of a column.
_LISTED = 200


@dataclass(frozen=True)
class Waiting:
    """What the wheel holds between the floor and a minute from now: an upper bound, answered results included.

    size, largest: of all rows and of one, in bytes as they go to Kafka, with what is added to them.
    batches: those of the due ones. A file of the wheel is of few batches, while its dues span most of an hour: by their batches it is
    known which files hold what is due.
    payload_hours: in which hours (epoch seconds) the payloads of those lie that are written again, and keep none.
    """

    rows: int
    size: int
    largest: int
    next_due: datetime | None
    batches: tuple[int, ...]
    payload_hours: tuple[int, ...] = ()


@dataclass(frozen=True)
class Window:
    """What goes to one destination and is due from `floor` to `upto`."""

    topic: str
    floor: datetime
    upto: datetime


@dataclass(frozen=True)
class Due:
    """What a step sends: what is due from `floor` to `upto` and may be sent `now`, but to no destination in `without`.

    only: where there are any, what lies in one of these windows. undecided_after: the last batch that is decided, where there are later
    ones. What their events name is left out: an order may cancel or replace it, a report may tell that it was sent, though its result is
    lost. A floor must not move over such a step.
    """

    floor: datetime
    upto: datetime
    now: datetime
    without: tuple[str, ...] = ()
    only: tuple[Window, ...] = ()
    undecided_after: int | None = None

    @classmethod
    def within(cls, windows: Sequence[Window], now: datetime, undecided_after: int | None = None) -> Due:
        """What is due in some windows, at least one."""
        floor, upto = min(window.floor for window in windows), max(window.upto for window in windows)
        return cls(floor, upto, now, only=tuple(windows), undecided_after=undecided_after)

    @property
    def windows(self) -> list[Window]:
        """The windows of `only`, as far as they lie before `upto`."""
        return [replace(window, upto=min(window.upto, self.upto)) for window in self.only if window.floor <= self.upto]

    @property
    def times(self) -> list[tuple[datetime, datetime]]:
        """From when to when something may be due, in order, without overlaps: windows may be days apart."""
        if not self.only:
            return [(self.floor, self.upto)]
        merged: list[tuple[datetime, datetime]] = []
        for floor, upto in sorted((window.floor, window.upto) for window in self.windows):
            if merged and floor <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], upto)
            else:
                merged.append((floor, upto))
        return merged


def of_batches(batches: Sequence[int]) -> str:
    """A condition on `batch`: one of these, where they are few; between the first and the last, where they are many."""
    if not batches:
        return "false"
    if len(batches) > _LISTED:
        return f"batch between {batches[0]} and {batches[-1]}"
    return f"batch in ({', '.join(map(str, batches))})"


def due_in(times: Sequence[tuple[datetime, datetime]]) -> str:
    """A condition on `due_at`: in one of these times."""
    return _any_of(f"due_at >= {literal(floor)} and due_at <= {literal(upto)}" for floor, upto in times)


def hours_in(times: Sequence[tuple[datetime, datetime]]) -> str:
    """A condition on `due_hour`: an hour in which one of these times lies."""
    return _any_of(f"due_hour >= date_trunc('hour', {literal(floor)}) and due_hour <= {literal(upto)}" for floor, upto in times)


def _any_of(conditions: Iterable[str]) -> str:
    listed = list(conditions)
    return " or ".join(f"({condition})" for condition in listed).join("()") if listed else "false"


def in_windows(windows: Sequence[Window]) -> Column:
    """A condition: to the destination of one of these windows, and due in it."""
    by_time: dict[tuple[datetime, datetime], list[str]] = {}
    for window in windows:
        by_time.setdefault((window.floor, window.upto), []).append(window.topic)
    # a topic's name is data, so it is compared with as a literal of Spark's, not written into the statement
    found = F.lit(False)
    for (floor, upto), topics in by_time.items():
        found = found | (F.col("topic").isin(*topics) & F.col("due_at").between(F.lit(floor), F.lit(upto)))
    return found


def with_payloads_in(hours: Sequence[int]) -> str:
    """A condition on what is written again: that its payload lies in one of these hours, given as epoch seconds."""
    if not hours:
        return "not is_written_again"
    within = f"payload_due >= timestamp_seconds({hours[0]}) and payload_due < timestamp_seconds({hours[-1] + 3600})"
    if len(hours) <= _LISTED:
        within += f" and payload_hour in ({', '.join(f'timestamp_seconds({hour})' for hour in hours)})"
    return f"(not is_written_again or ({within}))"
