"""What is known of rows of outboxes, and of their tables. Without the database's libraries, which a loop without outboxes needn't load."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa


class OutboxError(Exception):
    """The database could not be asked, or the table is not as the seed says."""


class RowState(NamedTuple):
    """What became of a row: see `outbox_states`. attempts and last_error are None where they have not changed."""

    row_id: str
    status: str
    attempts: int | None = None
    next_retry_at: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True)
class Lag:
    """How many rows are pending, and the seconds since the oldest was created (0: none is pending; None: the table doesn't say)."""

    pending: int
    oldest_seconds: float | None


Place: TypeAlias = tuple[Any, ...]
"""The values by which rows are in order."""


class Page(NamedTuple):
    """Pending rows (TAKEN), whether these are all, and the place of the last; None: there is none."""

    rows: pa.Table
    is_all: bool
    last: Place | None
