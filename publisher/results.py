"""Builds batches of publish results: whole Arrow columns at once, from the rows that share an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from publisher.contract import DELIVERED, FAILED, RESULTS, STOPPED, UNKNOWN
from publisher.lightening import omitted_of
from publisher.trouble import Trouble

_CARRIED: Final = (
    "delivery_id",
    "due_at",
    "kind",
    "message_id",
    "consumer_group",
    "topic",
    "original_topic",
    "original_partition",
    "original_offset",
)
_MS: Final = pa.timestamp("ms", tz="UTC")


def delivered(
    rows: pa.RecordBatch,
    sent_at: Sequence[int],
    partitions: Sequence[int | None],
    offsets: Sequence[int | None],
    slot: int,
) -> pa.RecordBatch:
    """Results of rows whose transaction is committed. Times are epoch milliseconds."""
    return _results(
        rows,
        DELIVERED,
        slot,
        partition=pa.array(partitions, pa.int32()),
        offset=pa.array(offsets, pa.int64()),
        sent_at=_times(sent_at),
        omitted=omitted_of(rows),
    )


def failed(rows: pa.RecordBatch, trouble: Trouble, slot: int) -> pa.RecordBatch:
    """Results of rows that are refused, each charged."""
    return _results(rows, FAILED, slot, **_why(trouble, rows.num_rows))


def unknown(rows: pa.RecordBatch, sent_at: Sequence[int], trouble: Trouble, not_before: int, slot: int) -> pa.RecordBatch:
    """Results of rows whose commit got no answer. They may be sent again from `not_before` on (epoch milliseconds)."""
    return _results(
        rows,
        UNKNOWN,
        slot,
        sent_at=_times(sent_at),
        not_before=_times([not_before] * rows.num_rows),
        omitted=omitted_of(rows),
        **_why(trouble, rows.num_rows),
    )


def stopped(topic: str | None, trouble: Trouble, slot: int) -> pa.RecordBatch:
    """One row that says why nothing more is sent to a destination, or to none where `topic` is None."""
    return _assembled({"topic": pa.array([topic], pa.string()), **_why(trouble, 1)}, STOPPED, slot, 1)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The results of one load in one batch."""
    return pa.Table.from_batches(batches, RESULTS).combine_chunks().to_batches()[0]


def _results(rows: pa.RecordBatch, outcome: str, slot: int, **columns: pa.Array) -> pa.RecordBatch:
    carried = {name: rows.column(name) for name in _CARRIED}
    return _assembled({**carried, **columns}, outcome, slot, rows.num_rows)


def _assembled(columns: dict[str, Any], outcome: str, slot: int, count: int) -> pa.RecordBatch:
    columns["outcome"] = _repeated(outcome, pa.string(), count)
    columns["slot"] = _repeated(slot, pa.int32(), count)
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in RESULTS]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULTS)


def _why(trouble: Trouble, count: int) -> dict[str, pa.Array]:
    return {
        "error_code": _repeated(trouble.error.code, pa.int32(), count),
        "error_name": _repeated(trouble.error.name, pa.string(), count),
        "error_kind": _repeated(trouble.error.kind, pa.string(), count),
        "error_message": _repeated(trouble.message, pa.string(), count),
    }


def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _times(epoch_ms: Sequence[int]) -> pa.Array:
    return pa.array(epoch_ms, pa.int64()).cast(_MS).cast(RESULTS.field("sent_at").type)
