"""What the timed lane has done, for the loop's thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from orchestration.clock import moment_of
from orchestration.loop.outcomes import Outcomes
from publisher import DELIVERED, FAILED, UNKNOWN


@dataclass(frozen=True)
class LaneStop:
    """A destination (None: Kafka as a whole) that took no sends, and why. since: the earliest due time of what was not sent."""

    topic: str | None
    reason: str
    error: str
    code: int
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Done(Outcomes):
    """What the lane has done and recorded since it was asked last.

    unknown_since: when the first of the sends whose outcome is unknown was made. lateness_ms: of each delivered row.
    """

    unknown_since: datetime | None = None
    lateness_ms: tuple[int, ...] = ()
    stops: tuple[LaneStop, ...] = ()

    @property
    def lateness(self) -> tuple[int, int] | None:
        """The median and the 99th percentile of lateness, in milliseconds; None if nothing was delivered."""
        ordered = sorted(self.lateness_ms)
        return (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]) if ordered else None

    def with_stop(self, stop: LaneStop) -> Done:
        """With a destination that took no sends."""
        return replace(self, stops=(*self.stops, stop))

    def with_results(self, results: pa.Table) -> Done:
        """With results (RESULTS) that were recorded."""
        delivered, failed, unknown = (results.filter(pc.equal(results.column("outcome"), name)) for name in (DELIVERED, FAILED, UNKNOWN))
        sent_at, due_at = (delivered.column(name).cast(pa.int64()) for name in ("sent_at", "due_at"))
        dead_letters = delivered.filter(pc.equal(delivered.column("kind"), "dead_letter"))
        return replace(
            self,
            delivered=self.delivered + delivered.num_rows,
            dead_letters=self.dead_letters + dead_letters.num_rows,
            failed=self.failed + failed.num_rows,
            unknown=self.unknown + unknown.num_rows,
            open_since=min(filter(None, [self.open_since, earliest(unknown)]), default=None),
            open_until=max(filter(None, [self.open_until, moment(pc.max(unknown.column("not_before")))]), default=None),
            unknown_since=min(filter(None, [self.unknown_since, moment(pc.min(unknown.column("sent_at")))]), default=None),
            lateness_ms=(*self.lateness_ms, *(micros // 1000 for micros in pc.subtract(sent_at, due_at).to_pylist())),
        )


def earliest(rows: pa.RecordBatch | pa.Table) -> datetime | None:
    """The earliest due time; None if there are no rows."""
    return moment(pc.min(rows.column("due_at")))


def moment(value: pa.Scalar) -> datetime | None:
    """A timestamp of Arrow's as a datetime in UTC; None if it is null."""
    micros = value.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()
    return None if micros is None else moment_of(micros)
