"""How far behind an outbox is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lag:
    """How many rows are pending, and the seconds since the oldest was created (0: none is pending; None: the table doesn't say)."""

    pending: int
    oldest_seconds: float | None
