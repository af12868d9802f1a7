"""Takes in rows of `ready`: checks their shape, completes their headers, and cuts them into loads for one transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from publisher.contract import READY, RECORDS
from publisher.errors import ContractError
from publisher.sizes import upper_bounds
from publisher.stamps import stamped


def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `READY` as `RECORDS`: with all the headers that they are sent with. Raises ContractError."""
    rows = _as(READY, batch)
    made = {
        "headers": stamped(rows),
        "own_headers": pc.list_value_length(rows.column("headers")),
        "reason_headers": pc.list_value_length(rows.column("dead_letter_headers")),
    }
    columns = [made[name] if name in made else rows.column(name) for name in RECORDS.names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with exactly the columns and types of `RECORDS`; further columns are dropped. Raises ContractError."""
    return _as(RECORDS, batch)


def _as(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise ContractError(f"rows of ready lack the columns {', '.join(missing)}")
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise ContractError(f"rows of ready have other types than agreed: {error}") from error


def loads(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, as batches of at most so many rows and wire bytes, and at least one row."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in map(as_records, batches):
        ends = np.cumsum(upper_bounds(batch))
        start = before = 0
        while start < batch.num_rows:
            # As many rows as there is room for; a row too large for any load goes as a load of its own.
            stop = min(int(np.searchsorted(ends, before + max_bytes - size, "right")), start + max_rows - rows)
            if stop <= start and not held:
                stop = start + 1
            if stop > start:
                held.append(batch.slice(start, stop - start))
                rows += stop - start
                size += int(ends[stop - 1]) - before
                start, before = stop, int(ends[stop - 1])
            if start < batch.num_rows or rows >= max_rows:
                yield _joined(held)
                held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
