"""Headers from Arrow's nested columns to what the Kafka client takes, and back out which of them it cannot carry."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Headers = list[tuple[str, bytes | None]]

_NOT_ASCII: Final = 128


def headers_of(rows: pa.RecordBatch) -> list[Headers | None]:
    """Each row's headers in their order, doubles kept; None for a row without any.

    The names and values of all rows are read at once from the flattened list, then cut by its lengths: reading row by
    row would make a dictionary for each header. Names repeat: each is made once.
    """
    column = rows.column("headers")
    flat = column.flatten()
    names = pc.struct_field(flat, "key").dictionary_encode()
    name_of = names.dictionary.to_pylist().__getitem__
    pairs = list(zip(map(name_of, names.indices.to_numpy().tolist()), _objects(pc.struct_field(flat, "value")), strict=True))
    lengths = pc.fill_null(column.value_lengths(), 0).to_numpy()
    ends = np.cumsum(lengths)
    return [pairs[start:end] or None for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def _objects(column: pa.Array) -> list[bytes | None]:
    """The same as to_pylist, which makes a scalar of each first: a fifth of its time."""
    objects: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return objects


def unsendable(rows: pa.RecordBatch) -> list[int]:
    """Positions of the rows with a header name that would not arrive as it is: null, not UTF-8, or with a zero byte.

    librdkafka takes names as zero-terminated strings, so a zero byte would silently cut the name.
    """
    column = rows.column("headers")
    names = pc.struct_field(column.flatten(), "key")
    if names.null_count == 0 and _is_plain(names):
        return []
    raw: list[bytes | None] = names.cast(pa.binary()).to_pylist()
    lengths: list[int] = pc.fill_null(column.value_lengths(), 0).to_pylist()
    return [
        row
        for row, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True))
        if not all(map(_carried, raw[end - length : end]))
    ]


def carried(row: pa.RecordBatch) -> list[bool]:
    """For each header of one row, in their order, whether its name arrives as it is."""
    names: list[bytes | None] = pc.struct_field(row.column("headers").flatten(), "key").cast(pa.binary()).to_pylist()
    return list(map(_carried, names))


def _is_plain(names: pa.StringArray) -> bool:
    """Whether all names are of ASCII without a zero byte, as nearly all are: a look at their bytes, however many they are."""
    _, offsets, data = names.buffers()
    if len(names) == 0 or data is None:
        return True
    first, end = np.frombuffer(offsets, np.int32, len(names) + 1, names.offset * 4)[[0, -1]].tolist()
    content = np.frombuffer(data, np.uint8, end - first, first)
    return bool(content.min(initial=1) > 0 and content.max(initial=1) < _NOT_ASCII)


def _carried(name: bytes | None) -> bool:
    if name is None or b"\0" in name:
        return False
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
