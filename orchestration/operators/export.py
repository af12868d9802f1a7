"""Writes dead letters to a file, with payloads and headers: JSON lines or Parquet."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration.operators.dead_letters import LISTED_COLUMNS, DeadLetters
from orchestration.operators.selections import DlqError, Selection
from orchestration.tables.rows import iterated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXPORTED = (
    *(*LISTED_COLUMNS, "error_stack", "error_pattern", "fingerprint", "rule", "matched", "life_cycle", "first_failed_at", "failed_at"),
    *("original_partition", "original_offset", "original_timestamp", "source", "delivery_id", "request_id", "process_id", "trace_id"),
    *("decision", "runbook", "logs_url", "trace_url", "payload_type", "schema_id", "omitted", "key", "value", "headers"),
)
_EXPORT_ROWS = 1_000


def export(dead: DeadLetters, selection: Selection, to: Path) -> int:
    """Writes the selected dead letters to a file: .jsonl (bytes in base64) or .parquet. Returns how many.

    The file appears only when it is complete. Raises DlqError for another suffix, or a file that exists.
    """
    write = {".jsonl": _write_jsonl, ".parquet": _write_parquet}.get(to.suffix)
    if write is None:
        raise DlqError(f"--to {to}: the name must end with .jsonl or .parquet")
    if to.exists():
        raise DlqError(f"--to {to}: the file exists already")
    unfinished = to.with_name(f".{to.name}.unfinished")
    try:
        frame = dead.frame(
            f"select {', '.join(_EXPORTED)} from stranded_messages where {selection.condition()} order by dead_at, message_id"
        )
        count = write(frame, unfinished)
        unfinished.replace(to)
    except OSError as error:
        raise DlqError(f"--to {to}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _write_jsonl(frame: DataFrame, to: Path) -> int:
    written = 0
    with to.open("w", encoding="utf-8") as file:
        for row in iterated(frame):
            line = {name: _exported(value) for name, value in row.asDict(recursive=True).items()}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            written += 1
    return written


def _exported(value: Any) -> Any:
    """Values for JSON. Bytes are always base64: if those that are text were written as text, the format would differ from row to row."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return {name: _exported(inner) for name, inner in value.items()}
    return [_exported(inner) for inner in value] if isinstance(value, list) else value


def _write_parquet(frame: DataFrame, to: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = pa.schema(
        (field.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) else field.type)
        for field in to_arrow_schema(frame.schema)
    )
    count = 0
    with pq.ParquetWriter(to, columns) as writer:
        for rows in _batches(row.asDict(recursive=True) for row in iterated(frame)):
            count += len(rows)
            writer.write_table(pa.Table.from_pylist(rows, columns))
    return count


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _EXPORT_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
