"""Rows of an outbox table as they are taken in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa

from orchestration.outbox.profiles import Outbox
from orchestration.outbox.states import OutboxError
from orchestration.outbox.values import bytes_of, compact, headers_of, moment_of, text_of

Columns = Mapping[str, sa.Column[Any]]

# As many attempts as a report may state.
_MOST_ATTEMPTS = 1_000

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


def taken_row(outbox: Outbox, columns: Columns, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table as one of TAKEN. Raises OutboxError, which names the row and quotes no value of it."""
    try:
        return _taken(outbox, columns, row)
    except Exception as error:
        raise OutboxError(f"the row {row['field id']} can't be read: {type(error).__name__}") from error


def _taken(outbox: Outbox, columns: Columns, row: Mapping[str, Any]) -> dict[str, Any]:
    aggregate = text_of(row.get("field aggregate"))
    key = row.get("field key")
    attempts = row.get("field attempts")
    topic = text_of(row.get("field topic"))
    if outbox.topic_template:
        topic = outbox.topic_template
        for name in outbox.columns_of_topic:
            topic = topic.replace(f"{{{name}}}", text_of(row[f"topic {name}"]) or "")
    return {
        "row_id": str(row["field id"]),
        "topic": topic,
        "key": bytes_of(aggregate if key is None and outbox.profile.key_of_aggregate else key),
        "value": _value(columns, row["field value"]),
        "headers": _headers(outbox, columns, row),
        "created_at": moment_of(row.get("field created_at")),
        "sequence": None if aggregate is None else f"{outbox.name}/{topic}/{aggregate}",
        "attempts": None if attempts is None else max(0, min(int(attempts), _MOST_ATTEMPTS)),
        "next_retry_at": moment_of(row.get("field next_retry_at")),
    }


def _value(columns: Columns, value: Any) -> bytes | None:
    if isinstance(value, str) and isinstance(columns["value"].type, sa.JSON):
        return compact(value).encode()
    return bytes_of(value)


def _headers(outbox: Outbox, columns: Columns, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = row.get("field headers")
    found: dict[str, bytes | None] = headers_of(given, columns["headers"].name) if given is not None else {}
    if outbox.profile.content_type:
        found["content-type"] = outbox.profile.content_type.encode()
    for name in outbox.profile.headers:
        value = text_of(row.get(f"header {name}"))
        if value is not None:
            found[name] = value.encode()
    return [{"key": name, "value": value} for name, value in found.items()]


def size_of(row: Mapping[str, Any]) -> int:
    """The bytes of a row's value and headers."""
    return len(row["value"] or b"") + sum(len(header["key"]) + len(header["value"] or b"") for header in row["headers"])
