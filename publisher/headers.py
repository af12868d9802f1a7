"""The headers of records: those that are added to a message's own, and from Arrow's nested columns to what the Kafka client takes.

Whole columns at once: reading row by row would make a dictionary for each header.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from publisher.contract import RECORDS

Headers = list[tuple[str, bytes | None]]
Numbers = npt.NDArray[np.int64]

_HEADER: Final = RECORDS.field("headers").type.value_type
_NOT_ASCII: Final = 128


def complete_headers(rows: pa.RecordBatch) -> pa.ListArray:
    """The complete headers of rows of `READY`: `headers`, `dead_letter_headers`, then those that name the delivery, without the null ones.

    Those are `redrive-delivery`, `-due` (epoch milliseconds), `-attempt`, `-message-id` and `-original-topic`, `-partition`, `-offset`,
    `-timestamp` (epoch milliseconds); numbers are decimal text.

    All names are one pool and all values another. For each place in the headers of all rows two numbers say which name and value belong
    there.
    """
    added = {
        "redrive-delivery": rows.column("delivery_id"),
        "redrive-due": _epoch_ms(rows.column("due_at")),
        "redrive-attempt": rows.column("attempt"),
        "redrive-message-id": rows.column("message_id"),
        "redrive-original-topic": rows.column("original_topic"),
        "redrive-original-partition": rows.column("original_partition"),
        "redrive-original-offset": rows.column("original_offset"),
        "redrive-original-timestamp": _epoch_ms(rows.column("original_timestamp")),
    }
    given = [rows.column("headers"), rows.column("dead_letter_headers")]
    lengths = [np.asarray(pc.fill_null(column.value_lengths(), 0).to_numpy(zero_copy_only=False), np.int64) for column in given]
    present = [np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) for column in added.values()]
    counts: Numbers = np.stack([*lengths, *present]).sum(axis=0, dtype=np.int64)
    ends = np.cumsum(counts)

    place = ends - counts  # of the next header of each row
    names: Numbers = np.empty(int(counts.sum()), np.int64)
    values = names.copy()
    first = 0
    for length in lengths:
        numbers = np.arange(int(length.sum()))
        places = numbers + np.repeat(place - (np.cumsum(length) - length), length)
        names[places] = values[places] = first + numbers
        first += numbers.size
        place = place + length
    for number, has in enumerate(present):
        (at,) = np.nonzero(has)
        names[place[at]] = first + number
        values[place[at]] = first + number * rows.num_rows + at
        place = place + has

    flat = [column.flatten() for column in given]
    texts = (column.cast(pa.string()).cast(pa.binary()) for column in added.values())
    all_names = pa.concat_arrays([*(pc.struct_field(some, "key") for some in flat), pa.array(list(added), pa.string())])
    all_values = pa.concat_arrays([*(pc.struct_field(some, "value") for some in flat), *texts])
    headers = pa.StructArray.from_arrays([all_names.take(pa.array(names)), all_values.take(pa.array(values))], fields=list(_HEADER))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), headers)


def headers_of(rows: pa.RecordBatch) -> list[Headers | None]:
    """The headers of each row in their order, doubles kept; None for a row without any. Names repeat: each is made once."""
    column = rows.column("headers")
    flat = column.flatten()
    names = pc.struct_field(flat, "key").dictionary_encode()
    name_of = names.dictionary.to_pylist().__getitem__
    # as to_pylist, which makes a scalar of each value first: a fifth of its time
    values: list[Any] = pc.struct_field(flat, "value").to_numpy(zero_copy_only=False).tolist()
    pairs = list(zip(map(name_of, names.indices.to_numpy().tolist()), values, strict=True))
    lengths = pc.fill_null(column.value_lengths(), 0).to_numpy()
    ends = np.cumsum(lengths)
    return [pairs[start:end] or None for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def unsendable(rows: pa.RecordBatch) -> list[int]:
    """Positions of the rows with a header name that would not arrive as it is: null, not UTF-8, or with a zero byte.

    librdkafka takes names as zero-terminated strings: a zero byte would cut the name.
    """
    column = rows.column("headers")
    names = pc.struct_field(column.flatten(), "key")
    if names.null_count == 0 and _is_plain(names):
        return []
    good = _sendable(names)
    lengths: list[int] = pc.fill_null(column.value_lengths(), 0).to_pylist()
    return [row for row, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)) if not all(good[end - length : end])]


def sendable_headers(row: pa.RecordBatch) -> list[bool]:
    """For each header of one row, in their order, whether its name arrives as it is."""
    return _sendable(pc.struct_field(row.column("headers").flatten(), "key"))


def _epoch_ms(times: pa.Array) -> pa.Array:
    return pc.divide(times.cast(pa.int64()), 1_000)


def _is_plain(names: pa.StringArray) -> bool:
    """Whether all names are ASCII without a zero byte, as nearly all are: one look at their bytes, however many they are."""
    _, offsets, data = names.buffers()
    if len(names) == 0 or data is None:
        return True
    first, end = np.frombuffer(offsets, np.int32, len(names) + 1, names.offset * 4)[[0, -1]].tolist()
    content = np.frombuffer(data, np.uint8, end - first, first)
    return bool(content.min(initial=1) > 0 and content.max(initial=1) < _NOT_ASCII)


def _sendable(names: pa.StringArray) -> list[bool]:
    """For each name whether the client sends it unchanged. Not decoded by Arrow: a name that is not UTF-8 would raise."""
    return [name is not None and b"\0" not in name and _is_utf_8(name) for name in names.cast(pa.binary()).to_pylist()]


def _is_utf_8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
