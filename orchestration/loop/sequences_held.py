"""Sequences of outboxes of which rows may be open in the tables: later rows of theirs must not be sent past those.

A row without a sequence has its message's id for one: if its owner sets it to pending while it is open, it must not be sent beside that.

Kept as hashes of 60 bits, as there may be a million: two sequences with the same one only hold each other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from orchestration.clock import literal
from orchestration.loop.stored import Stored

# How many times as long as the last query took the next one waits.
_RARELY = 5

_HASH = "cast(conv(substr(md5(sequence), 1, 15), 16, 10) as bigint)"


@dataclass
class SequencesHeld:
    """known: a superset of these sequences, sorted; None: not known. next_look: when the tables may be asked again, a monotonic time."""

    known: npt.NDArray[np.int64] | None = None
    next_look: float = field(default=0.0)

    def add(self, sequences: Collection[str]) -> None:
        """Adds sequences of rows that are taken into the tables."""
        if self.known is not None and sequences:
            self.known = np.union1d(self.known, _hashes(sequences))

    def among(self, sequences: Collection[str]) -> set[str]:
        """Those of these sequences of which rows may be open."""
        assert self.known is not None, "the tables were not asked yet"
        if not self.known.size or not sequences:
            return set()
        listed = [*sequences]
        # they are sorted: a million need not be read for each page
        wanted = _hashes(listed)
        held = self.known[np.minimum(np.searchsorted(self.known, wanted), self.known.size - 1)] == wanted
        return {name for name, is_held in zip(listed, held.tolist(), strict=True) if is_held}

    def look(self, stored: Stored, watermark: int, floor: datetime) -> None:
        """Asks the tables; leaves it unknown while an operator's order is not decided: it may open any of them again.

        watermark: the batch up to which everything is decided. floor: nothing that is open was due before.
        """
        began = time.monotonic()
        hashes = stored.spark.sql(
            f"""
            select distinct {_HASH} as hash from (
                select if(kind = 'row', coalesce(sequence, concat('outbox:', source, '/', detail)), null) as sequence
                from {stored.schema}.events
                where batch > {watermark:d} and (kind = 'row' or (command is not null and delivery_id is not null))
                union all
                select coalesce(sequence, regexp_replace(delivery_id, '#[^#]*$', '')) from {stored.schema}.bulk_open
                where due_at >= {literal(floor)} and due_hour >= date_trunc('hour', {literal(floor)})
            )
            """
        ).toArrow()["hash"]
        self.known = None if hashes.null_count else np.sort(hashes.to_numpy().astype(np.int64))
        ended = time.monotonic()
        self.next_look = ended + _RARELY * (ended - began)


def _hashes(sequences: Collection[str]) -> npt.NDArray[np.int64]:
    return np.array([int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:15], 16) for name in sequences], np.int64)
