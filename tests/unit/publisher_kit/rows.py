"""Rows of `ready` with few words, and results as plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from publisher import PublisherSettings, Session, publish, publishing
from publisher.contract import RECORDS
from publisher.ready import as_records
from tests.unit.publisher_kit.tables import ERROR_KINDS

Row = Mapping[str, Any]
Headers = Sequence[tuple[str | None, bytes | None]]

SLOT = 7
NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ready(rows: Iterable[Row]) -> pa.RecordBatch:
    """A batch of `ready`: what a row doesn't say is made up from its position. Headers are (name, value) pairs."""
    full = [_row(position, row) for position, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(full, schema=RECORDS)


def send(rows: Iterable[Row] | Sequence[pa.RecordBatch], settings: PublisherSettings, clock: int | None = NOW_MS) -> list[dict[str, Any]]:
    """Publishes rows as one batch, or batches as they are, and gives all results. The clock stands still at NOW."""
    listed = list(rows)
    batches = listed if listed and isinstance(listed[0], pa.RecordBatch) else [ready(listed)]
    now = NOW_MS if clock is None else clock
    return [row for batch in publish_records(iter(batches), settings, SLOT, lambda: now) for row in plain(batch)]


def publish_records(
    batches: Iterable[pa.RecordBatch], settings: PublisherSettings, slot: int, clock: Callable[[], int], kept: Session | None = None
) -> Iterator[pa.RecordBatch]:
    """`publish` for rows that are complete already (schema `RECORDS`)."""
    with patch.object(publishing.Task, "complete", lambda _, rows: map(as_records, rows)):
        yield from publish(batches, settings, slot, clock, kept)


def plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, times as aware datetimes in UTC."""
    columns = {
        field.name: batch.column(field.name).cast(pa.int64()).to_pylist()
        if pa.types.is_timestamp(field.type)
        else batch.column(field.name).to_pylist()
        for field in batch.schema
    }
    for field in batch.schema:
        if pa.types.is_timestamp(field.type):
            columns[field.name] = [None if us is None else _EPOCH + timedelta(microseconds=us) for us in columns[field.name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def settings_for(bootstrap: str, **changes: Any) -> PublisherSettings:
    """Settings for a mock cluster: short waits, quiet clients, a linger that keeps a partition's rows in one batch."""
    kafka = {"bootstrap.servers": bootstrap, "linger.ms": "200", "log_level": "0", **changes.pop("kafka", {})}
    defaults: dict[str, Any] = {
        "error_kinds": ERROR_KINDS,
        "transaction_timeout_ms": 3_000,
        "metadata_timeout_ms": 2_000,
    }
    return PublisherSettings(kafka=kafka, **{**defaults, **changes})


def outcomes(results: Iterable[Row]) -> dict[str, str]:
    """Outcome by delivery id; fails when a delivery has two results. `stopped` rows are left out."""
    found: dict[str, str] = {}
    for row in results:
        if row["outcome"] != "stopped":
            assert row["delivery_id"] not in found, f"two results for {row['delivery_id']}"
            found[row["delivery_id"]] = row["outcome"]
    return found


def stops(results: Iterable[Row]) -> list[tuple[str | None, int, str]]:
    """Topic, error code and kind of each `stopped` row."""
    return [(row["topic"], row["error_code"], row["error_kind"]) for row in results if row["outcome"] == "stopped"]


def _row(position: int, row: Row) -> dict[str, Any]:
    headers = row.get("headers")
    return {
        "delivery_id": f"d{position}",
        "due_at": NOW,
        "kind": "retry",
        "message_id": f"group:orders/0/{position}",
        "partition": 0,
        "key": f"k{position}".encode(),
        "value": b"value",
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": position,
        **row,
        "headers": None if headers is None else [{"key": name, "value": value} for name, value in headers],
    }
