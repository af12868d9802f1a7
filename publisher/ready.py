"""Rows of `ready`: checks their shape, completes their headers, and cuts them into loads and by topic. Their order is kept."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from publisher.contract import OMITTED_PAYLOAD, RECORDS
from publisher.errors import ContractError
from publisher.fitting import upper_bounds
from publisher.headers import complete_headers


def complete(rows: pa.RecordBatch, without_payload: Collection[int] = ()) -> pa.RecordBatch:
    """Rows of `READY` as `RECORDS`: with all headers that are sent. without_payload: positions of dead letters that have none any more."""
    made = {
        "headers": complete_headers(rows),
        "own_headers": pc.list_value_length(rows.column("headers")),
        "reason_headers": pc.list_value_length(rows.column("dead_letter_headers")),
        "omitted": pa.array([OMITTED_PAYLOAD if row in without_payload else None for row in range(rows.num_rows)], pa.string())
        if without_payload
        else pa.nulls(rows.num_rows, pa.string()),
    }
    return pa.RecordBatch.from_arrays([made[name] if name in made else rows.column(name) for name in RECORDS.names], schema=RECORDS)


def as_records(batch: pa.RecordBatch, schema: pa.Schema = RECORDS) -> pa.RecordBatch:
    """The batch with exactly the columns and types of the schema; further columns are dropped. Raises ContractError."""
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise ContractError(f"rows of ready lack the columns {', '.join(missing)}")
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise ContractError(f"rows of ready have other types than agreed: {error}") from error


def loads(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of at most `max_rows` and `max_bytes` on the wire, but of at least one row."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        ends = np.cumsum(upper_bounds(batch))
        start = before = 0
        while start < batch.num_rows:
            # As many rows as fit; a row that is too large for any load makes a load of its own.
            stop = min(int(np.searchsorted(ends, before + max_bytes - size, "right")), start + max_rows - rows)
            if stop <= start and not held:
                stop = start + 1
            if stop > start:
                held.append(batch.slice(start, stop - start))
                rows += stop - start
                size += int(ends[stop - 1]) - before
                start, before = stop, int(ends[stop - 1])
            if start < batch.num_rows or rows >= max_rows:
                yield joined(held)
                held, rows, size = [], 0, 0
    if held:
        yield joined(held)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of one or more batches as one batch."""
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def topics_in(rows: pa.RecordBatch) -> list[str]:
    """The topics of the rows, each once, in the order in which they first appear."""
    # A name that is not UTF-8 is not legal, and is refused later: it must not raise here.
    raw: list[bytes | None] = rows.column("topic").unique().cast(pa.binary()).to_pylist()
    return [(name or b"").decode(errors="replace") for name in raw]


def of_topics(rows: pa.RecordBatch, topics: Collection[str], *, others: bool = False) -> pa.RecordBatch:
    """The rows that go to one of the topics; others: those that go to none of them."""
    chosen = pc.is_in(rows.column("topic"), pa.array(list(topics), pa.string()))
    return rows.filter(pc.invert(chosen) if others else chosen)


def sequences_in(rows: pa.RecordBatch) -> set[str]:
    """The sequences of the rows."""
    return set(rows.column("sequence").drop_null().to_pylist())


def without_sequences(rows: pa.RecordBatch, sequences: Collection[str]) -> pa.RecordBatch:
    """The rows that are in none of the sequences."""
    if not sequences:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column("sequence"), pa.array(list(sequences), pa.string()))))


def first_of_sequences(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The first row of each sequence, and the rows that are in none."""
    if rows.column("sequence").null_count == rows.num_rows:
        return rows
    seen: set[str] = set()
    first = [name is None or not (name in seen or seen.add(name)) for name in rows.column("sequence").to_pylist()]  # type: ignore[func-returns-value]
    return rows.filter(pa.array(first, pa.bool_()))
