"""What became of sends, counted: of a publish step, or of the timed lane for some time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How many rows had which outcome. dead_letters: those of the delivered rows that are dead letters.

    open_since: the earliest due time among the sends whose outcome is unknown; open_until: when the last of them may be sent again.
    """

    delivered: int = 0
    dead_letters: int = 0
    failed: int = 0
    unknown: int = 0
    open_since: datetime | None = None
    open_until: datetime | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The numbers, by what happened to the rows."""
        return {"delivered": self.delivered, "dead_letters": self.dead_letters, "failed": self.failed, "unknown": self.unknown}
