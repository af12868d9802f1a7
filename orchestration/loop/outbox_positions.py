"""How far the rows of an outbox are written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Row


@dataclass(frozen=True)
class OutboxPosition:
    """written: the last batch whose events and results are written back. decided: the last whose decisions are.

    adopts: rows are still taken that another relay left as failed.
    """

    written: int
    decided: int
    adopts: bool = False

    @classmethod
    def from_row(cls, row: Row | Mapping[str, Any]) -> OutboxPosition:
        """From a value of `ticks.outboxes`."""
        return cls(row["written"], row["decided"], row["adopts"])

    def as_row(self) -> dict[str, Any]:
        """As a value of `ticks.outboxes`."""
        return asdict(self)
