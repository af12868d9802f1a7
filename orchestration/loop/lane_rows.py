"""Selects, copies and joins rows of the timed lane."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = pa.RecordBatch | pa.Table

# A slice keeps the memory of the whole batch: rows that are left are copied when they take less than half of the memory that they keep.
_SPARSE = 2


def any_of(rows: Rows, values: dict[str, pa.Array]) -> pa.Array:
    """For each row, whether it has one of the values of a column. Columns that the rows don't have match nothing."""
    found = pa.repeat(pa.scalar(False), rows.num_rows)
    for name, wanted in values.items():
        if name in rows.schema.names:
            found = pc.or_(found, pc.fill_null(pc.is_in(rows.column(name), wanted), False))
    return found


def every(rows: Rows) -> pa.Array:
    """For each row, that it is chosen."""
    return pa.repeat(pa.scalar(True), rows.num_rows)


def is_any(rows: Rows, values: dict[str, pa.Array]) -> bool:
    """Whether any row has one of the values of a column."""
    return bool(pc.any(any_of(rows, values)).as_py())


def without(rows: pa.Table, ids: Collection[str]) -> pa.Table:
    """The rows, except deliveries with these ids."""
    return rows.filter(pa.array([name not in ids for name in rows.column("delivery_id").to_pylist()], pa.bool_()))


def compact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows; copied, if the memory that they keep is mostly that of other rows."""
    return rows.take(pa.array(range(rows.num_rows))) if rows.get_total_buffer_size() > _SPARSE * rows.nbytes else rows


def joined(batches: list[pa.RecordBatch], order: str) -> pa.RecordBatch:
    """Batches as one, sorted by a column. They must have at least one row in all."""
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).sort_by(order).combine_chunks().to_batches()
    return joined[0]
