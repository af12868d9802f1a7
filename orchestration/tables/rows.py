"""Rows from Spark to Python, with times as numbers on the way.

pyspark converts a timestamp to the local time of this process, without a zone. In the hour that is repeated when summer time ends, two such
times compare wrongly; code that takes one for UTC is wrong in every other zone; and for a time near the first or last year that Python
supports, pyspark raises. Here Spark returns microseconds since 1970, and Python makes aware UTC times of them.

`bounded` limits the rows and bytes that a running loop reads for a question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from orchestration.clock import date_of, moment_of

Decoder = Callable[[Any], Any]


class TooMuchError(Exception):
    """More rows or bytes were read than the bounds in force allow."""


@dataclass(frozen=True)
class _Bounds:
    rows: int
    size: int


_BOUNDS: ContextVar[_Bounds | None] = ContextVar("bounds", default=None)


@contextmanager
def bounded(rows: int, size: int) -> Iterator[None]:
    """Lets each query of this thread read at most so many rows, and about so many bytes; otherwise TooMuchError is raised."""
    token = _BOUNDS.set(_Bounds(rows, size))
    try:
        yield
    finally:
        _BOUNDS.reset(token)


def collected(frame: DataFrame, limit: int | None = None) -> list[Row]:
    """All rows, or the first `limit`. Times are aware, in UTC; a time out of Python's range becomes the nearest one in it."""
    numbers, decode = _numbered(frame)
    return [decode(row) for row in _read(numbers, limit)]


def iterated(frame: DataFrame) -> Iterator[Row]:
    """The rows of `collected`, one after the other: Spark keeps one partition at a time for them."""
    numbers, decode = _numbered(frame)
    return (decode(row) for row in numbers.toLocalIterator())


def as_dicts(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of `collected` as dictionaries, read with Arrow: several times as fast for a million rows. Column names must be unique."""
    numbers, decode = _numbered(frame)
    names = frame.columns
    if _BOUNDS.get() is not None:
        return [dict(zip(names, decode(row), strict=True)) for row in _read(numbers, None)]
    return [dict(zip(names, decode(tuple(row.values())), strict=True)) for row in numbers.toArrow().to_pylist()]


def ids_frame(spark: SparkSession, ids: Collection[str]) -> DataFrame:
    """Delivery ids as a frame. By Arrow: from Python objects, a hundred thousand would take seconds."""
    return spark.createDataFrame(pa.table({"delivery_id": pa.array(list(ids), pa.string())}))


def _read(frame: DataFrame, limit: int | None) -> list[Row]:
    """Collects rows within the bounds in force."""
    bounds = _BOUNDS.get()
    if bounds is None:
        return (frame if limit is None else frame.limit(limit)).collect()
    read: list[Row] = []
    size = 0
    # one row more than the bound shows that there are more
    for row in frame.limit(bounds.rows + 1 if limit is None else min(limit, bounds.rows + 1)).toLocalIterator():
        size += _size(row)
        if len(read) == bounds.rows or size > bounds.size:
            raise TooMuchError(f"more than {bounds.rows:,} rows, or than {bounds.size // 1_000_000} MB")
        read.append(row)
    return read


def _size(value: Any) -> int:
    """About how many bytes a value takes."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(name) + _size(inner) for name, inner in value.items())
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return 8


def _numbered(frame: DataFrame) -> tuple[DataFrame, Decoder]:
    """The frame with numbers instead of times, and the function that turns its rows into rows with times."""
    fields = frame.schema.fields
    decoders = [_decoder(field.dataType) for field in fields]
    if not any(decoders):
        return frame, lambda row: row
    names = [field.name for field in fields]
    if len({name.casefold() for name in names}) < len(names):
        # told apart by position
        frame = frame.toDF(*(f"_{place}" for place in range(len(fields))))
    # as text, in one call: a Column for each is several calls of the JVM
    numbers = frame.selectExpr(
        *(f"{_number(_quoted(there), field.dataType)} as {_quoted(field.name)}" for there, field in zip(frame.columns, fields, strict=True))
    )
    return numbers, _row_decoder(names, decoders)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _number(value: str, kind: DataType, depth: int = 0) -> str:
    """An expression with numbers instead of times, nested ones included. depth: of the functions that it is in, to name their arguments."""
    if isinstance(kind, TimestampType):
        return f"unix_micros({value})"
    if isinstance(kind, TimestampNTZType):
        return f"unix_micros(cast({value} as timestamp))"
    if isinstance(kind, DateType):
        return f"unix_date({value})"
    if _decoder(kind) is None:
        return value
    one, other = f"_x{depth}", f"_y{depth}"
    if isinstance(kind, ArrayType):
        return f"transform({value}, {one} -> {_number(one, kind.elementType, depth + 1)})"
    if isinstance(kind, MapType):
        keys = f"transform_keys({value}, ({one}, {other}) -> {_number(one, kind.keyType, depth + 1)})"
        return f"transform_values({keys}, ({one}, {other}) -> {_number(other, kind.valueType, depth + 1)})"
    assert isinstance(kind, StructType)
    fields = (f"{_text(field.name)}, {_number(f'{value}.{_quoted(field.name)}', field.dataType, depth)}" for field in kind.fields)
    return f"if({value} is null, null, named_struct({', '.join(fields)}))"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _decoder(kind: DataType) -> Decoder | None:
    """The function that turns numbers back into times; None if the type has no time in it."""
    if isinstance(kind, TimestampType):
        return moment_of
    if isinstance(kind, TimestampNTZType):
        return lambda micros: moment_of(micros).replace(tzinfo=None)
    if isinstance(kind, DateType):
        return date_of
    if isinstance(kind, ArrayType):
        element = _decoder(kind.elementType)
        return element and (lambda values: [_decoded(element, value) for value in values])
    if isinstance(kind, MapType):
        key, value = _decoder(kind.keyType), _decoder(kind.valueType)
        return (key or value) and (lambda values: {_decoded(key, name): _decoded(value, inner) for name, inner in values.items()})
    if isinstance(kind, StructType):
        decoders = [_decoder(field.dataType) for field in kind]
        return _row_decoder(kind.names, decoders) if any(decoders) else None
    return None


def _row_decoder(names: list[str], decoders: list[Decoder | None]) -> Decoder:
    row = Row(*names)
    return lambda values: row(*(_decoded(decoder, value) for decoder, value in zip(decoders, values, strict=True)))


def _decoded(decoder: Decoder | None, value: Any) -> Any:
    return value if decoder is None or value is None else decoder(value)


def free(frame: DataFrame) -> None:
    """Frees the rows that localCheckpoint has kept. Spark itself would do so at some garbage collection that finds the frame unused."""
    plan: Any = frame._jdf.queryExecution().logical()
    plan.rdd().unpersist(False)
