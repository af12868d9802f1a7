"""Deletes rows of outbox tables that were published long enough ago: run with the maintenance of redrive's own tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestration.clock import parse_duration
from orchestration.outbox.database import OutboxError, OutboxTable
from orchestration.outbox.profiles import Outbox
from orchestration.rules.seeds import read_seeds
from orchestration.settings import Settings


@dataclass(frozen=True)
class Purged:
    """How many rows of an outbox were deleted; problem: why no more could be, in words."""

    outbox: str
    rows: int
    problem: str = ""


def purge_outboxes(settings: Settings, now: datetime) -> list[Purged]:
    """Deletes what the seed `outboxes` says (`purge_after`). One that can't be reached stops no other. Raises SeedError."""
    purged = []
    for row in read_seeds(settings.seeds).rows["outboxes"]:
        if not row["purge_after"]:
            continue
        table = OutboxTable(Outbox.of(row.values, settings.connections))
        rows = 0
        problem = ""
        try:
            for deleted in table.purge(now - parse_duration(row["purge_after"])):
                rows += deleted
        except OutboxError as error:
            problem = str(error)
        purged.append(Purged(row["outbox"], rows, problem))
    return purged
