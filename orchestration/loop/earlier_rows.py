"""Rows of `ticks` that table version 2 and earlier wrote, in the columns of today.

There, the column `positions` (now `next_offsets`) held everything that is a number, and the keys said what each number is. The first start
of this version goes on from such a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Row

# Keys that are no partition's. A partition's is `topic id/number`.
_SOURCE = "source:"
_COMMAND = "command:"
_COMMANDS_SINCE = "commands"
# earlier still, `decision_feed` was called `announced`
_DECISION_FEED, _ANNOUNCED = "decision_feed", "announced"
_AWAITED = "awaited"


def in_columns_of_today(row: Row | Mapping[str, Any]) -> Mapping[str, Any]:
    """The row as it is, if this version wrote it; else with its numbers in columns of their own."""
    columns = row.asDict() if isinstance(row, Row) else row
    if columns["started_sources"] is not None:
        return columns
    numbers = dict(columns["next_offsets"] or {})
    sources, issued = _taken(numbers, _SOURCE), _taken(numbers, _COMMAND)
    announced = numbers.pop(_ANNOUNCED, None)
    return {
        **columns,
        "started_sources": sorted(sources),
        "commands_since": numbers.pop(_COMMANDS_SINCE, 0),
        "commands_issued": issued,
        "feed_batch": numbers.pop(_DECISION_FEED, announced),
        "awaited_batch": numbers.pop(_AWAITED, 0),
        "next_offsets": numbers,
    }


def _taken(numbers: dict[str, int], prefix: str) -> dict[str, int]:
    """Takes the entries out whose key begins so; returns them by the rest of their key."""
    found = [key for key in numbers if key.startswith(prefix)]
    return {key.removeprefix(prefix): numbers.pop(key) for key in found}
