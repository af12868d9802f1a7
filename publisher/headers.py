"""Headers from Arrow's nested columns to what the Kafka client takes, and back out which of them it cannot carry."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

Headers = list[tuple[str, bytes | None]]

_NUL: Final = "\0"


def headers_of(rows: pa.RecordBatch) -> list[Headers | None]:
    """Each row's headers in their order, doubles kept; None for a row without any.

    The names and values of all rows are read at once from the flattened list, then cut by its lengths: reading row by
    row would make a dictionary for each header.
    """
    column = rows.column("headers")
    flat = column.flatten()
    pairs = list(zip(pc.struct_field(flat, "key").to_pylist(), pc.struct_field(flat, "value").to_pylist(), strict=True))
    lengths: list[int] = pc.fill_null(column.value_lengths(), 0).to_pylist()
    return [pairs[end - length : end] or None for length, end in zip(lengths, accumulate(lengths), strict=True)]


def unsendable(rows: pa.RecordBatch) -> list[int]:
    """Positions of the rows with a header name that would not arrive as it is: null, not UTF-8, or with a zero byte.

    librdkafka takes names as zero-terminated strings, so a zero byte would silently cut the name.
    """
    column = rows.column("headers")
    names = pc.struct_field(column.flatten(), "key")
    if names.null_count == 0 and not pc.any(pc.match_substring(names, _NUL)).as_py() and _is_utf8(names):
        return []
    raw: list[bytes | None] = names.cast(pa.binary()).to_pylist()
    lengths: list[int] = pc.fill_null(column.value_lengths(), 0).to_pylist()
    return [
        row
        for row, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True))
        if not all(map(_carried, raw[end - length : end]))
    ]


def _is_utf8(names: pa.StringArray) -> bool:
    try:
        # Arrow checks UTF-8 on the way from bytes to text only.
        names.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _carried(name: bytes | None) -> bool:
    if name is None or b"\0" in name:
        return False
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
