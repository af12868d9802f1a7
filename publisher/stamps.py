"""The headers that a record carries after the message's own: why it died, and then which delivery of which message it is.

Whole Arrow columns at once: for each place in the headers of all rows, the number of the header that belongs there in one
pool of all names and values.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

Numbers = npt.NDArray[np.int64]


def stamped(rows: pa.RecordBatch) -> pa.ListArray:
    """The complete headers of each row: its `headers`, its `dead_letter_headers`, then ours. What is null is left out.

    Ours are `redrive-delivery`, `-due` (epoch milliseconds), `-attempt`, `-message-id` and `-original-topic`, `-partition`,
    `-offset`, `-timestamp` (epoch milliseconds); numbers are decimal text.
    """
    stamps = {
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
    lengths = [_numbers(pc.fill_null(column.value_lengths(), 0)) for column in given]
    present = [_mask(column) for column in stamps.values()]
    counts: Numbers = np.stack([*lengths, *present]).sum(axis=0, dtype=np.int64)
    ends = np.cumsum(counts)

    # where the next header of each row goes, and which one is there: numbers in the pools of names and of values
    place = ends - counts
    names: Numbers = np.empty(int(counts.sum()), np.int64)
    values = names.copy()
    first = 0
    for length in lengths:
        numbers = np.arange(int(length.sum()))
        places = numbers + np.repeat(place - (np.cumsum(length) - length), length)
        names[places] = values[places] = first + numbers
        first += numbers.size
        place = place + length
    for stamp, has in enumerate(present):
        (at,) = np.nonzero(has)
        names[place[at]] = first + stamp
        values[place[at]] = first + stamp * rows.num_rows + at
        place = place + has

    flat = [column.flatten() for column in given]
    all_names = pa.concat_arrays([*(pc.struct_field(some, "key") for some in flat), pa.array(list(stamps), pa.string())])
    all_values = pa.concat_arrays([*(pc.struct_field(some, "value") for some in flat), *map(_bytes, stamps.values())])
    headers = pa.StructArray.from_arrays([all_names.take(pa.array(names)), all_values.take(pa.array(values))], fields=list(_HEADER))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.ListArray.from_arrays(offsets, headers)


def _epoch_ms(times: pa.Array) -> pa.Array:
    return pc.divide(times.cast(pa.int64()), 1_000)


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(pa.binary())


def _mask(column: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _numbers(column: pa.Array) -> Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
