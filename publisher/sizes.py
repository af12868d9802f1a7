"""How large a record is on the wire. Sizes are bytes of a record batch v2 (KIP-98) without compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

# A record batch's own header: what a record pays when it travels alone, and brokers count it.
BATCH_OVERHEAD: Final = 61

# The most that a record's own fields take: length 5, attributes 1, timestamp 10, offset, key length, value length and
# number of headers 5 each. librdkafka reckons with the same.
RECORD_OVERHEAD: Final = 36

# The most that the two lengths of a header take.
_HEADER_OVERHEAD: Final = 10


def upper_bounds(rows: pa.RecordBatch) -> pa.Int64Array:
    """For each row a size that it certainly doesn't exceed when it travels alone."""
    headers = rows.column("headers")
    flat = headers.flatten()
    names, values = pc.struct_field(flat, "key"), pc.struct_field(flat, "value")
    each = pc.add(pc.add(_lengths(names), _lengths(values)), _HEADER_OVERHEAD)
    running = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    counts = pc.fill_null(headers.value_lengths(), 0)
    ends = pc.cumulative_sum(counts)
    of_headers = pc.subtract(running.take(ends), running.take(pc.subtract(ends, counts)))
    content = pc.add(_lengths(rows.column("key")), _lengths(rows.column("value")))
    return pc.add(pc.add(content, of_headers), BATCH_OVERHEAD + RECORD_OVERHEAD)


def exact_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """The size of a record that travels alone in a batch, to the byte: what brokers compare with max.message.bytes."""
    size = 1 + 1 + 1 + _varint(len(headers))  # attributes, timestamp and offset relative to the batch's, header count
    size += _field(key) + _field(value)
    for name, content in headers:
        size += _field(name.encode()) + _field(content)
    return BATCH_OVERHEAD + _varint(size) + size


def _lengths(column: pa.Array) -> pa.Int64Array:
    return pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0)


def _field(content: bytes | None) -> int:
    return _varint(-1) if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Length of a zigzag varint: seven bits in each byte."""
    zigzag = (number << 1) ^ (number >> 63)
    return max(1, -(-zigzag.bit_length() // 7))
