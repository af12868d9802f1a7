"""What waits in the timed lane, and when each row of it is to be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from orchestration.loop.issued import ISSUED_AHEAD
from orchestration.loop.lane_results import earliest, moment
from orchestration.loop.lane_rows import compact, joined

IS_PACED = "is_paced"
"""The column that says of a row whether the intervals between its due time and those of the others are kept, even if it is overdue."""

# How far paced rows may be overdue, and how long a send may take, without a delay of what follows. With less, a lane whose transactions
# take long would send fewer than the rate allows. What a rate allows in twice this time may come at once.
_CATCHES_UP = timedelta(milliseconds=250)


@dataclass
class Schedule:
    """Rows in the order of the times at which they are sent: at their due times, paced ones as long after them as `behind` says.

    Paced rows are not sent all at once when they are overdue, whatever the reason: they were decided late, no loop ran, or sends took long.
    All of them have the same delay, whichever command they belong to. It ends when none waits and the next come in time, and where the next
    is due so much later than the last that it can't have been issued with it: else what is issued after an hour without a loop would be
    sent an hour late.
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    """Each is sorted by due time. The rows of one are all paced, or none is."""
    behind: timedelta = timedelta()
    _last: datetime | None = None
    """The due time of the last paced row that was taken out."""
    _sent_since: datetime | None = None
    """When the rows that are being sent were taken out, if paced ones are among them."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return sum(rows.num_rows for rows in self.batches)

    @property
    def next(self) -> datetime | None:
        """When the next row is to be sent; None if nothing waits."""
        return min((first + self._delay(rows) for rows in self.batches if (first := earliest(rows)) is not None), default=None)

    def add(self, rows: pa.Table, now: datetime) -> None:
        """Takes more rows."""
        ordered = rows.sort_by("due_at").combine_chunks()
        added = [some for batch in ordered.to_batches() for some in _by_pace(batch)]
        first = _first_paced(added)
        if first is not None and first >= now and _first_paced(self.batches) is None:
            self.behind = timedelta()
        self.batches += added
        self._forget_delay_after_a_gap()

    def take(self, now: datetime, most: int) -> pa.RecordBatch:
        """Takes out what is to be sent by now, sorted by due time, at most so many rows. There must be one at least."""
        self.behind = max(self.behind, now - (_first_paced(self.batches) or now) - _CATCHES_UP)
        # sorted: what is sent now is at the beginning
        counts = [
            pc.sum(pc.less_equal(rows.column("due_at"), pa.scalar(now - self._delay(rows), rows.schema.field("due_at").type))).as_py()
            for rows in self.batches
        ]
        due = joined([rows.slice(0, count) for rows, count in zip(self.batches, counts, strict=True)], "due_at")
        left = [*_by_pace(due.slice(most)), *(rows.slice(count) for rows, count in zip(self.batches, counts, strict=True))]
        self.batches = [compact(rows) for rows in left if rows.num_rows]
        taken = due.slice(0, most)
        last = moment(pc.max(taken.filter(taken.column(IS_PACED)).column("due_at")))
        self._last, self._sent_since = last or self._last, now if last else None
        self._forget_delay_after_a_gap()
        return taken

    def sent(self, now: datetime) -> None:
        """Notes that what was taken out last has been sent: until now nobody got it, so what follows keeps its distance to now."""
        if self._sent_since is not None:
            self.behind += max(timedelta(), now - self._sent_since - _CATCHES_UP)

    def remove(self, which: Callable[[pa.RecordBatch], pa.Array]) -> list[pa.RecordBatch]:
        """Takes out the rows for which a function returns true."""
        masks = [which(rows) for rows in self.batches]
        removed = [rows.filter(mask) for rows, mask in zip(self.batches, masks, strict=True)]
        left = [rows.filter(pc.invert(mask)) for rows, mask in zip(self.batches, masks, strict=True)]
        self.batches = [rows for rows in left if rows.num_rows]
        self._forget_delay_after_a_gap()
        return removed

    def _forget_delay_after_a_gap(self) -> None:
        first = _first_paced(self.batches)
        if first is not None and self._last is not None and first - self._last > ISSUED_AHEAD:
            self.behind = timedelta()

    def _delay(self, rows: pa.RecordBatch) -> timedelta:
        return self.behind if _is_paced(rows) else timedelta()


def _first_paced(batches: list[pa.RecordBatch]) -> datetime | None:
    """The earliest due time of paced rows."""
    return min(filter(None, (earliest(rows) for rows in batches if _is_paced(rows))), default=None)


def _by_pace(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows that are not paced, and those that are: each batch has one row at least."""
    paced = rows.column(IS_PACED)
    return [some for some in (rows.filter(pc.invert(paced)), rows.filter(paced)) if some.num_rows]


def _is_paced(rows: pa.RecordBatch) -> bool:
    return bool(rows.column(IS_PACED)[0].as_py())
