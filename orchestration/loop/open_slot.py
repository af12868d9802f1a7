"""A slot beside those of the bulk lane, whose producer stays open: for the timed lane, and for rows of outboxes that are sent directly."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from orchestration.clock import EPOCH, LoopClock
from orchestration.loop.leadership import Leadership
from publisher import PublisherSettings, Session, publish, refuse_superseded


@dataclass
class OpenSlot:
    """place: TIMED_LANE or DIRECT_SENDS (leadership.py). No two threads may use one at a time."""

    leadership: Leadership
    clock: LoopClock
    place: int
    _session: Session | None = field(default=None, init=False)
    _settings: PublisherSettings | None = field(default=None, init=False)

    def publish(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Sends rows (READY), and returns their results (RESULTS), as publisher.publish does. Raises nothing."""
        bulk_lane = self.leadership.bulk_lane
        slot = bulk_lane.slots + self.place
        if self._session is None or self._settings != bulk_lane.settings:
            self.end()
            self._settings = bulk_lane.settings
            self._session = Session(bulk_lane.settings, slot, refuse_superseded, stays_open=True)
        return list(publish([rows], bulk_lane.settings, slot, self._now_ms, self._session))

    def end(self) -> None:
        """Ends the producer."""
        if self._session is not None:
            self._session.end()

    def _now_ms(self) -> int:
        return (self.clock.now() - EPOCH) // timedelta(milliseconds=1)
