"""Which rows of `ready` a step sends, and the conditions with which Iceberg skips the files that hold none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from orchestration.clock import literal

# The longest list of values that Iceberg compares with the column bounds of a file; with a longer one it skips no file.
_LISTED = 200


@dataclass(frozen=True)
class Waiting:
    """What the wheel holds of what a step is to send: an upper bound, as deliveries that are closed already are counted, too.

    size, largest: estimated bytes of all rows that are due, and of the largest one, with the headers that are added.
    next_due: the earliest due time after these rows; None if it is more than HORIZON (sending.py) later, or is not looked for.
    batches: those of the rows that are due. A file of the wheel holds few batches, but due times of most of an hour, so a condition on the
    batch skips more files than one on the due time.
    payload_hours: the hours (epoch seconds) of the due times of first dead letters: if Kafka refuses a dead letter, the next one is written
    without a payload, which stays in the row of the first (`is_written_again` in `ready`).
    overdue: how many of the rows are due already when they are looked for. ordered: how many must stay in order with others.
    """

    rows: int
    size: int
    largest: int
    next_due: datetime | None
    batches: tuple[int, ...]
    payload_hours: tuple[int, ...] = ()
    overdue: int = 0
    ordered: int = 0


@dataclass(frozen=True)
class Window:
    """What goes to one destination and is due from `floor` to `upto`."""

    topic: str
    floor: datetime
    upto: datetime


@dataclass(frozen=True)
class Seen:
    """What an earlier look has seen: what was decided up to a batch, and is due up to a moment."""

    batch: int
    upto: datetime


@dataclass(frozen=True)
class Due:
    """What a step sends: deliveries that are due from `floor` to `upto` and may be sent `now`, except to destinations in `without`, and
    under breaker keys in `without_breakers`.

    only: if not empty, only what lies in one of these windows. undecided_after: the last batch that is decided, if there are later ones.
    Deliveries that events of later batches name are left out: an order may cancel or replace one, and a report may show that one was sent
    although its result is lost. The floor must not move over a step that left something out. seen: if given, only what that look has not
    seen. in_lane: the delivery ids that the timed lane has, which are left out. backlog: if given, what is due by now and was
    decided up to this batch is left out, except what is sent at a rate. in_order: only what stays in order (True), that is, rows of
    outboxes and, if `followers`, messages that have waited for an earlier one; only the rest (False); or both (None). open_from: no
    open delivery was due before, wherever it goes; None: the floor.
    """

    floor: datetime
    upto: datetime
    now: datetime
    without: tuple[str, ...] = ()
    without_breakers: tuple[str, ...] = ()
    only: tuple[Window, ...] = ()
    undecided_after: int | None = None
    seen: Seen | None = None
    in_lane: frozenset[str] = frozenset()
    backlog: int | None = None
    in_order: bool | None = None
    followers: bool = False
    open_from: datetime | None = None

    @classmethod
    def within(
        cls,
        windows: Sequence[Window],
        now: datetime,
        undecided_after: int | None = None,
        in_lane: frozenset[str] = frozenset(),
        open_from: datetime | None = None,
    ) -> Due:
        """What is due in some windows, at least one."""
        floor, upto = min(window.floor for window in windows), max(window.upto for window in windows)
        return cls(floor, upto, now, only=tuple(windows), undecided_after=undecided_after, in_lane=in_lane, open_from=open_from)

    @property
    def windows(self) -> list[Window]:
        """The windows of `only`, as far as they lie before `upto`."""
        return [replace(window, upto=min(window.upto, self.upto)) for window in self.only if window.floor <= self.upto]

    @property
    def times(self) -> list[tuple[datetime, datetime]]:
        """The periods in which something may be due, in order, without overlaps: windows may be days apart."""
        if not self.only:
            return [(self.floor, self.upto)]
        merged: list[tuple[datetime, datetime]] = []
        for floor, upto in sorted((window.floor, window.upto) for window in self.windows):
            if merged and floor <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], upto)
            else:
                merged.append((floor, upto))
        return merged


def of_kind(what: Due) -> str:
    """A condition: the delivery sends something, and stays in order with others or doesn't, as wanted."""
    ordered = "(kind = 'publish' or sequence_place is not null)" if what.followers else "kind = 'publish'"
    return {None: "kind is not null", True: f"kind is not null and {ordered}", False: f"kind is not null and not {ordered}"}[what.in_order]


AT_A_RATE = "(decision = 'redrive' and happened_at is not null)"
"""A condition: the delivery is one of a command with a rate."""


def ahead_in(what: Due) -> str:
    """A condition: the delivery is not part of the backlog."""
    return "true" if what.backlog is None else f"({AT_A_RATE} or due_at > {literal(what.now)} or batch > {what.backlog:d})"


def not_in(seen: Seen | None) -> str:
    """A condition: an earlier look has not seen it."""
    return "true" if seen is None else f"(batch > {seen.batch:d} or due_at > {literal(seen.upto)})"


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
    # the name of a topic is data: it is passed as a literal of Spark's, never as text of a statement
    found = F.lit(False)
    for (floor, upto), topics in by_time.items():
        found = found | (F.col("topic").isin(*topics) & F.col("due_at").between(F.lit(floor), F.lit(upto)))
    return found


def with_payloads_in(hours: Sequence[int]) -> str:
    """A condition on rows that are written again: their payload lies in one of these hours, given as epoch seconds."""
    if not hours:
        return "not is_written_again"
    within = f"payload_due >= timestamp_seconds({hours[0]}) and payload_due < timestamp_seconds({hours[-1] + 3600})"
    if len(hours) <= _LISTED:
        within += f" and payload_hour in ({', '.join(f'timestamp_seconds({hour})' for hour in hours)})"
    return f"(not is_written_again or ({within}))"
