"""The headers of records, by whole columns: adds redrive's to the message's own, and finds those that the Kafka client can't send."""

from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from publisher.contract import PUBLICATION, RECORDS

Headers = list[tuple[str, bytes | None]]
Numbers = npt.NDArray[np.int64]
_HEADER: Final = RECORDS.field("headers").type.value_type


def complete_headers(rows: pa.RecordBatch) -> pa.ListArray:
    """The complete headers of rows of `READY`: `headers`, `dead_letter_headers`, then those that name the delivery and are not null.

    Numbers are decimal text, times epoch milliseconds.
    """
    added = {
        "redrive-delivery": rows.column("delivery_id"),
        "redrive-due": pc.divide(rows.column("due_at").cast(pa.int64()), 1_000),
        "redrive-attempt": rows.column("attempt"),
        # what an outbox publishes is an original record: its consumers name it by group and place, and so do their retries
        "redrive-message-id": pc.if_else(pc.equal(rows.column("kind"), PUBLICATION), None, rows.column("message_id")),
        "redrive-original-topic": rows.column("original_topic"),
        "redrive-original-partition": rows.column("original_partition"),
        "redrive-original-offset": rows.column("original_offset"),
        "redrive-original-timestamp": pc.divide(rows.column("original_timestamp").cast(pa.int64()), 1_000),
        "redrive-sequence": rows.column("sequence_id"),
        "redrive-sequence-epoch": rows.column("sequence_epoch"),
    }
    given = [rows.column("headers"), rows.column("dead_letter_headers")]
    lengths = [np.asarray(pc.fill_null(column.value_lengths(), 0).to_numpy(zero_copy_only=False), np.int64) for column in given]
    present = [np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) for column in added.values()]
    counts: Numbers = np.stack([*lengths, *present]).sum(axis=0, dtype=np.int64)
    ends = np.cumsum(counts)

    # For each place in the headers of all rows, the index of its name in `all_names`, and of its value in `all_values`.
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
    """The headers of each row in order, with duplicates; None for a row without any. Names repeat, so each is converted once."""
    column = rows.column("headers")
    flat = column.flatten()
    names = pc.struct_field(flat, "key").dictionary_encode()
    name_of = names.dictionary.to_pylist().__getitem__
    # the same as to_pylist in a fifth of the time: to_pylist makes a scalar of each value first
    values: list[Any] = pc.struct_field(flat, "value").to_numpy(zero_copy_only=False).tolist()
    pairs = list(zip(map(name_of, names.indices.to_numpy().tolist()), values, strict=True))
    lengths = pc.fill_null(column.value_lengths(), 0).to_numpy()
    ends = np.cumsum(lengths)
    return [pairs[start:end] or None for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def unsendable(rows: pa.RecordBatch) -> list[int]:
    """Positions of the rows with a header name that would not arrive as it is: null, not UTF-8, or cut at a zero byte."""
    column = rows.column("headers")
    names = pc.struct_field(column.flatten(), "key")
    if names.null_count == 0 and _is_plain(names):
        return []
    good = sendable(names)
    lengths: list[int] = pc.fill_null(column.value_lengths(), 0).to_pylist()
    return [row for row, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)) if not all(good[end - length : end])]


def sendable(names: pa.StringArray) -> list[bool]:
    """For each name of a header whether the client sends it unchanged. Not decoded by Arrow: a name that is not UTF-8 would raise."""
    raw: list[bytes | None] = names.cast(pa.binary()).to_pylist()
    return [name is not None and b"\0" not in name and name.decode(errors="ignore").encode() == name for name in raw]


def _is_plain(names: pa.StringArray) -> bool:
    """Whether all names are ASCII without a zero byte, as nearly all are: tests their bytes as one array."""
    _, offsets, data = names.buffers()
    if len(names) == 0 or data is None:
        return True
    first, end = np.frombuffer(offsets, np.int32, len(names) + 1, names.offset * 4)[[0, -1]].tolist()
    content = np.frombuffer(data, np.uint8, end - first, first)
    return bool(content.min(initial=1) > 0 and content.max(initial=1) < 128)
