"""Deletes rows of outbox tables that were published long enough ago: run with the maintenance of redrive's own tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestration.rules.seeds import read_seeds
from orchestration.settings import Settings


@dataclass(frozen=True)
class Purged:
    """How many rows of an outbox were deleted; problem: why no more could be, in words."""

    outbox: str
    rows: int
    problem: str = ""

    def __str__(self) -> str:
        return f"outbox {self.outbox}: {self.rows:,} published rows deleted{'; ' + self.problem if self.problem else ''}"


def purge_outboxes(settings: Settings, now: datetime) -> list[Purged]:
    """Deletes what the seed `outboxes` says (`purge_after`). One that can't be reached stops no other. Raises SeedError."""
    wanted = [row.values for row in read_seeds(settings.seeds).rows["outboxes"] if row["purge_after"]]
    if not wanted:
        return []
    from orchestration.outbox.database import outbox_tables
    from orchestration.outbox.states import OutboxError

    purged = []
    for table in outbox_tables(wanted, settings.connections):
        assert table.outbox.purge_after is not None
        rows, problem = 0, ""
        try:
            for deleted in table.purge(now - table.outbox.purge_after):
                rows += deleted
        except OutboxError as error:
            problem = str(error)
        purged.append(Purged(table.outbox.name, rows, problem))
    return purged
