"""Dead letters that are too large for their topic: what may be left out, so that something lies there rather than nothing.

First the headers that say why the message died: they are in the tables, too. Then the payload, and what came with it. What
says which message it is stays, so that the payload can be found.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError

from publisher.contract import DEAD_LETTER, OMITTED_HEADERS, OMITTED_PAYLOAD, RECORDS
from publisher.headers import Headers, headers_of
from publisher.sizes import exact_size
from publisher.trouble import Trouble

# What is on a dead letter beside what identifies it. A message's own headers may begin with `dlq-`, too: these are ours.
_REASONS: Final = frozenset(
    {"dlq-reason", "dlq-error-class", "dlq-original-topic", "dlq-failed-at", "dlq-attempts", "redrive-consumer-group"}
)

_IDENTITY: Final = frozenset({"redrive-delivery", "redrive-due", "redrive-attempt", "redrive-message-id"})
_ORIGINAL: Final = "redrive-original-"

# Says to whoever reads the dead letter that the message had a payload.
_OMITTED: Final = ("redrive-payload", b"omitted")

_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


def lightened(row: pa.RecordBatch, trouble: Trouble) -> pa.RecordBatch | None:
    """One refused row with less in it, and a column `omitted` that says what is left out.

    None if the trouble is not its size, if it is no dead letter, or if nothing is left that may be left out.
    """
    if trouble.error.code not in _TOO_LARGE or row.column("kind")[0].as_py() != DEAD_LETTER:
        return None
    key, value, headers = row.column("key")[0].as_py(), row.column("value")[0].as_py(), headers_of(row)[0] or []
    identity = [header for header in headers if header[0] in _IDENTITY or header[0].startswith(_ORIGINAL)]
    size = exact_size(key, value, headers)
    without_reasons = [header for header in headers if header[0] not in _REASONS]
    for lighter_key, lighter_value, lighter_headers, omitted in (
        (key, value, without_reasons, OMITTED_HEADERS),
        (key, None, [*identity, _OMITTED], OMITTED_PAYLOAD),
        (None, None, [*identity, _OMITTED], OMITTED_PAYLOAD),
    ):
        if exact_size(lighter_key, lighter_value, lighter_headers) < size:
            return _with(row, lighter_key, lighter_value, lighter_headers, omitted)
    return None


def omitted_of(rows: pa.RecordBatch) -> pa.Array:
    """What is left out of each row; null where nothing is."""
    return rows.column("omitted") if "omitted" in rows.schema.names else pa.nulls(rows.num_rows, pa.string())


def replaced(rows: pa.RecordBatch, others: dict[int, pa.RecordBatch]) -> pa.RecordBatch:
    """The rows with some of them, by position, replaced by lightened ones."""
    if not others:
        return rows
    full = rows if "omitted" in rows.schema.names else rows.append_column("omitted", omitted_of(rows))
    together = pa.Table.from_batches([full, *others.values()]).combine_chunks().to_batches()[0]
    places = {position: rows.num_rows + number for number, position in enumerate(others)}
    return together.take(pa.array([places.get(position, position) for position in range(rows.num_rows)], pa.int64()))


def _with(row: pa.RecordBatch, key: bytes | None, value: bytes | None, headers: Headers, omitted: str) -> pa.RecordBatch:
    columns = {name: row.column(name) for name in RECORDS.names}
    columns["key"] = pa.array([key], pa.binary())
    columns["value"] = pa.array([value], pa.binary())
    columns["headers"] = pa.array([[{"key": name, "value": content} for name, content in headers]], RECORDS.field("headers").type)
    columns["omitted"] = pa.array([omitted], pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS.append(pa.field("omitted", pa.string())))
