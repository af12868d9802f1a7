"""A timed lane with a clock that is set by hand, a Kafka, and a ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from orchestration.clock import EPOCH
from orchestration.loop.lane import HANDED, TimedLane
from orchestration.tables.ledgers import AppendError
from publisher import DELIVERED, RESULTS, STOPPED, UNKNOWN

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


SECOND = timedelta(seconds=1)


def rows(*deliveries: str, due: datetime = NOW, topic: str = "retry", breaker: str | None = None, paced: bool = False) -> pa.Table:
    """Rows that are handed over."""
    return pa.Table.from_pylist(
        [
            {
                "delivery_id": name,
                "due_at": due,
                "kind": "retry",
                "message_id": name,
                "topic": topic,
                "breaker_key": breaker,
                "is_paced": paced,
            }
            for name in deliveries
        ],
        schema=HANDED,
    )


@dataclass
class World:
    """A clock that is set by hand, Kafka, and the ledger."""

    now: datetime = NOW - 10 * SECOND
    sent: list[list[str]] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    stops: dict[str | None, int] = field(default_factory=dict)
    """Topics that take nothing (None: Kafka), with the code of the error."""
    outcomes: dict[str, str] = field(default_factory=dict)
    refusals: int = 0
    """How many appends fail."""
    answers: threading.Event = field(default_factory=threading.Event)
    """Whether Kafka answers."""
    asked: threading.Event = field(default_factory=threading.Event)
    appends: threading.Event = field(default_factory=threading.Event)
    lane: TimedLane = field(init=False)

    def __post_init__(self) -> None:
        self.answers.set()
        self.appends.set()
        self.lane = TimedLane(self._send, self._record, self._now_ms, 1_000, 1_000_000, longest_unrecorded=3.0)

    def _now_ms(self) -> int:
        return (self.now - EPOCH) // timedelta(milliseconds=1)

    def _send(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        self.asked.set()
        assert self.answers.wait(30)
        results = []
        for row in batch.to_pylist():
            stop = next((topic for topic in (row["topic"], None) if topic in self.stops), "")
            outcome = self.outcomes.get(row["delivery_id"], DELIVERED)
            if stop == "":
                same = {name: row[name] for name in ("delivery_id", "due_at", "kind", "message_id", "topic")}
                not_before = self.now + 60 * SECOND if outcome == UNKNOWN else None
                results.append({**same, "outcome": outcome, "sent_at": self.now, "not_before": not_before})
            elif not any(one["outcome"] == STOPPED and one["topic"] == stop for one in results):
                refused = {"error_code": self.stops[stop], "error_name": "NO", "error_message": "no"}
                results.append({"outcome": STOPPED, "topic": stop, **refused})
        self.sent.append([row["delivery_id"] for row in results if row["outcome"] != STOPPED])
        return [pa.RecordBatch.from_pylist(results, schema=RESULTS)]

    def _record(self, results: pa.Table, tried: list[int]) -> None:
        assert self.appends.wait(30)
        tried.append(len(tried) + 1)
        self.tried = list(tried)
        if self.refusals:
            self.refusals -= 1
            raise AppendError("locked")
        self.recorded += results.column("delivery_id").to_pylist()

    def at(self, seconds: float) -> None:
        """Sets the clock to so many seconds after NOW."""
        self.now = NOW + seconds * SECOND
        with self.lane._changed:
            self.lane._changed.notify_all()

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    @property
    def all_sent(self) -> list[str]:
        return [name for some in self.sent for name in some]
