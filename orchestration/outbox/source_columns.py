"""What is read of an outbox table, column by column, in few types, whatever types its database has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from orchestration.outbox.values import bytes_of, moment_of, text_of

_BYTES: Final = ("field key", "field value", "field headers")
_MOMENTS: Final = ("field created_at", "field next_retry_at")
_ATTEMPTS: Final = "field attempts"

FIELDS_READ: Final = ("id", "topic", "key", "value", "headers", "aggregate", "created_at", "attempts", "next_retry_at")
"""The fields whose columns are read."""

# As many attempts as a report may state.
_MOST_ATTEMPTS: Final = 1_000


def source_type(name: str, *, is_json: bool) -> pa.DataType:
    """The type of what was chosen by a name: `field FIELD`, `header NAME` or `topic COLUMN`. is_json: whether it is text with JSON."""
    if name in _MOMENTS:
        return pa.timestamp("us", tz="UTC")
    if name == _ATTEMPTS:
        return pa.int32()
    return pa.binary() if name in _BYTES and not is_json else pa.string()


def plain_columns(chosen: Mapping[str, sa.ColumnElement[Any]]) -> list[sa.Label[Any]] | None:
    """The columns of PostgreSQL as they are read as Arrow; None if one may have other values than `columns_of_rows` makes."""
    found = [column.label(name) for name, given in chosen.items() if (column := _plain(name, given)) is not None]
    return found if len(found) == len(chosen) else None


def columns_of_rows(types: Mapping[str, pa.DataType], rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
    """The columns of rows that a driver has read. types: of the columns, in the order of the rows' values."""
    return {
        name: pa.array(map(_CONVERTED[kind], values), kind)
        for (name, kind), values in zip(types.items(), zip(*rows, strict=True), strict=True)
    }


def columns_of_batch(types: Mapping[str, pa.DataType], rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of rows that were read as Arrow, from `plain_columns`. Raises ArrowInvalid if a value is none of its type."""
    found = {}
    for name, kind in types.items():
        values = rows.column(name)
        if name == _ATTEMPTS:
            bounded = pc.max_element_wise(0, pc.min_element_wise(values, _MOST_ATTEMPTS, skip_nulls=False), skip_nulls=False)
            found[name] = bounded.cast(kind)
        elif values.type == kind:
            found[name] = values
        elif kind == pa.binary() and not pa.types.is_binary(values.type):
            found[name] = values.cast(pa.string()).cast(kind)
        elif pa.types.is_timestamp(kind) and values.type.tz is None:
            found[name] = values.cast(pa.timestamp("us")).cast(kind)
        else:
            found[name] = values.cast(kind)
    return found


def _plain(name: str, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any] | None:
    kind = column.type
    if name in _MOMENTS:
        # as the driver reads them, too: beyond these, Python has no times
        is_time = isinstance(kind, sa.DateTime)
        return sa.case((column > _LAST, _LAST), (column < _FIRST, _FIRST), else_=column) if is_time else None
    if isinstance(kind, sa.Integer | sa.LargeBinary | sa.CHAR):
        # not as text: a value of type character would lose blanks at its end
        return column
    return sa.cast(column, sa.Text) if isinstance(kind, sa.Uuid | sa.String) else None


_LAST: Final[sa.ColumnElement[Any]] = sa.literal_column("'9999-12-31 23:59:59.999999'")
_FIRST: Final[sa.ColumnElement[Any]] = sa.literal_column("'0001-01-01'")


def _attempts(value: Any) -> int | None:
    return None if value is None else max(0, min(int(value), _MOST_ATTEMPTS))


_CONVERTED: Final[Mapping[pa.DataType, Callable[[Any], Any]]] = {
    pa.string(): text_of,
    pa.binary(): bytes_of,
    pa.int32(): _attempts,
    pa.timestamp("us", tz="UTC"): moment_of,
}
