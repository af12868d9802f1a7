"""How many records an intake step takes: estimated from those before, as Kafka tells the size of records only to those who read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# The assumed size of a source's records, in bytes, before its first step has measured them: large, so that this step takes few records.
_FIRST_BYTES_PER_ROW = 16_384

# The least size that is assumed, in bytes.
_LEAST_BYTES_PER_ROW = 64.0

# A step takes at most _GROWTH times the records of the one before, or _SUDDEN_ROWS if that is more: after a calm time it is not known how
# large the records of a sudden burst are.
_GROWTH = 4
_SUDDEN_ROWS = 10_000

# The part of a source's assumed size that remains after a step with smaller records.
_REMEMBERED = 0.9


@dataclass
class StepSize:
    """The size of intake steps. most_rows, most_bytes: what a step takes at most; bytes are an estimate."""

    most_rows: int
    most_bytes: int
    _bytes_per_row: dict[str, float] = field(default_factory=dict)
    _rows_before: int = 0

    def rows(self, sources: Iterable[str]) -> int:
        """How many records the next step may take, at least one, if it reads these sources."""
        heaviest = max((self._bytes_per_row.get(source, _FIRST_BYTES_PER_ROW) for source in sources), default=1.0)
        most = min(self.most_rows, max(_SUDDEN_ROWS, _GROWTH * self._rows_before))
        return max(1, min(most, int(self.most_bytes / heaviest)))

    def begin(self) -> None:
        """Begins a step: `measured` adds what it takes."""
        self._rows_before = 0

    def measured(self, source: str, rows: int, size: int) -> None:
        """Adds records of a source that the step has taken. size: of all of them, in bytes."""
        if rows:
            self._rows_before += rows
            before = self._bytes_per_row.get(source, 0.0)
            self._bytes_per_row[source] = max(_LEAST_BYTES_PER_ROW, size / rows, _REMEMBERED * before)
