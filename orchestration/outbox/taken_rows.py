"""Rows of an outbox table as they are taken in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestration.outbox.profiles import IN_TOPIC, Outbox
from orchestration.outbox.values import headers_of

TAKEN: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("row_id", "topic")),
        *(pa.field(name, pa.binary()) for name in ("key", "value")),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
        pa.field("sequence", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("next_retry_at", pa.timestamp("us", tz="UTC")),
    ]
)
"""Rows of an outbox as they are taken, in their order."""

_HEADER: Final = TAKEN.field("headers").type.value_type

# Strings of JSON, which are kept, and blanks between them, which are not.
_BLANKS: Final = r'("(?:[^"\\]|\\.)*")|\s+'


def taken_rows(outbox: Outbox, columns: Mapping[str, pa.Array], *, is_json: bool) -> pa.RecordBatch:
    """Rows of the table as TAKEN. columns: with the types that `source_columns` gives. is_json: whether values are JSON.

    A value of JSON has no blanks between its strings; its numbers stay as they are written.
    """
    count = len(columns["field id"])
    texts = {name: columns.get(f"field {name}", pa.nulls(count, pa.string())) for name in ("id", "key", "aggregate")}
    topics = _topics(outbox, columns)
    key = texts["key"].cast(pa.binary())
    if outbox.profile.key_of_aggregate:
        key = pc.coalesce(key, texts["aggregate"].cast(pa.binary()))
    value = columns["field value"]
    if is_json:
        value = pc.replace_substring_regex(value, _BLANKS, r"\1")
    made = {
        "row_id": texts["id"],
        "topic": topics,
        "key": key,
        "value": value.cast(pa.binary()),
        "headers": _headers(outbox, columns, count),
        "sequence": pc.binary_join_element_wise(f"{outbox.name}/", topics, "/", texts["aggregate"], ""),
        **{name: columns.get(f"field {name}") for name in ("created_at", "attempts", "next_retry_at")},
    }
    arrays = [pa.nulls(count, field.type) if made[field.name] is None else made[field.name] for field in TAKEN]
    return pa.RecordBatch.from_arrays(arrays, schema=TAKEN)


def sizes_of(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of each row's value and headers."""
    headers = rows.column("headers")
    flat = headers.flatten()
    lengths = pc.add(pc.binary_length(pc.struct_field(flat, "key")), pc.fill_null(pc.binary_length(pc.struct_field(flat, "value")), 0))
    upto = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    ends = headers.offsets.to_numpy()
    values = pc.fill_null(pc.binary_length(rows.column("value")), 0).to_numpy(zero_copy_only=False)
    sizes: npt.NDArray[np.int64] = values + upto[ends[1:] - ends[0]] - upto[ends[:-1] - ends[0]]
    return sizes


def _topics(outbox: Outbox, columns: Mapping[str, pa.Array]) -> pa.Array:
    if not outbox.topic_template:
        return columns["field topic"]
    # between the names of columns, texts
    pieces = IN_TOPIC.split(outbox.topic_template)
    parts = [pc.fill_null(columns[f"topic {piece}"], "") if place % 2 else piece for place, piece in enumerate(pieces)]
    if len(parts) == 1:
        return pa.repeat(parts[0], len(columns["field id"]))
    return pc.binary_join_element_wise(*parts, "")


def _headers(outbox: Outbox, columns: Mapping[str, pa.Array], count: int) -> pa.ListArray:
    """The headers of each row: those in its own column, the type of the content, and those in other columns, which win."""
    added: dict[str, pa.Array] = {}
    if outbox.profile.content_type:
        added["content-type"] = pa.repeat(outbox.profile.content_type.encode(), count)
    added |= {name: columns[f"header {name}"].cast(pa.binary()) for name in outbox.profile.headers if f"header {name}" in columns}
    has = {name: values.is_valid().to_numpy(zero_copy_only=False) for name, values in added.items()}
    column = outbox.profile.columns.get("headers", "")
    own = columns.get("field headers", pa.nulls(count, pa.binary()))
    given = np.flatnonzero(pc.fill_null(pc.not_equal(own, b"{}"), False).to_numpy(zero_copy_only=False))
    found = [
        {name: value for name, value in headers_of(text, column).items() if name not in has or not has[name][row]}
        for row, text in zip(given, own.take(pa.array(given)).to_pylist(), strict=True)
    ]
    rows = np.concatenate([np.repeat(given, [len(one) for one in found]), *(np.flatnonzero(there) for there in has.values())])
    order = pa.array(np.argsort(rows, kind="stable"))
    keys = [pa.array(chain.from_iterable(found), pa.string()), *(pa.repeat(name, int(there.sum())) for name, there in has.items())]
    values = [pa.array(chain.from_iterable(one.values() for one in found), pa.binary()), *(one.drop_null() for one in added.values())]
    flat = pa.StructArray.from_arrays([pa.concat_arrays(keys).take(order), pa.concat_arrays(values).take(order)], fields=[*_HEADER])
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=count))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)
