"""How large a record is on the wire. Sizes are bytes of a record batch v2 (KIP-98) without compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

# A record batch's own header: what a record pays when it travels alone, and brokers count it.
BATCH_OVERHEAD: Final = 61

# The most that a record's own fields take: length 5, attributes 1, timestamp 10, offset, key length, value length and
# number of headers 5 each. librdkafka reckons with the same.
RECORD_OVERHEAD: Final = 36

# The most that the two lengths of a header take.
_HEADER_OVERHEAD: Final = 10


def upper_bounds(rows: pa.RecordBatch) -> Numbers:
    """For each row a size that it certainly doesn't exceed when it travels alone.

    From the offsets of Arrow's columns: the number of headers in a row costs nothing.
    """
    headers = rows.column("headers")
    firsts_and_ends = headers.offsets.to_numpy()
    size = np.full(rows.num_rows, BATCH_OVERHEAD + RECORD_OVERHEAD, np.int64)
    size += np.diff(firsts_and_ends) * _HEADER_OVERHEAD
    for part in (headers.values.field("key"), headers.values.field("value")):
        size += np.diff(_offsets(part)[firsts_and_ends])
    for column in (rows.column("key"), rows.column("value")):
        size += np.diff(_offsets(column))
    return size


def exact_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """The size of a record that travels alone in a batch, to the byte: what brokers compare with max.message.bytes."""
    size = 1 + 1 + 1 + _varint(len(headers))  # attributes, timestamp and offset relative to the batch's, header count
    size += _field(key) + _field(value)
    for name, content in headers:
        size += _field(name.encode()) + _field(content)
    return BATCH_OVERHEAD + _varint(size) + size


def _offsets(column: pa.Array) -> Numbers:
    """Where each text of a column begins in its data, and where the last one ends."""
    buffer = column.buffers()[1]
    if len(column) == 0 or buffer is None:
        return np.zeros(len(column) + 1, np.int64)
    return np.frombuffer(buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)


def _field(content: bytes | None) -> int:
    return _varint(-1) if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Length of a zigzag varint: seven bits in each byte."""
    zigzag = (number << 1) ^ (number >> 63)
    return max(1, -(-zigzag.bit_length() // 7))
