"""Rows of a table as reports: its columns are those that Spark gives a record of Kafka, and those of the error."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from orchestration.kafka.cluster import Partition
from orchestration.loop.packed_keys import with_unpacked_keys
from orchestration.rules.seeds import Row
from orchestration.tables.source_tables import HEADERS, OWN_DIALECT, TIMES, TableError, objections

PLACE: Final = "redrive place"
"""The column with the place of a row, as `read` gives it."""


def as_events(rows: DataFrame, row: Row, partition: Partition, first_offset: int) -> DataFrame:
    """Rows with their PLACE as events. row: of the seed `sources`. first_offset: that of the place 0. Raises TableError."""
    if wrong := objections(rows.schema, row["dialect"]):
        raise TableError("; ".join(wrong))
    # in lower case, as the names below are
    rows = rows.select(*(F.col(f"`{name}`").alias(name.lower()) for name in rows.columns))
    is_own = row["dialect"] == OWN_DIALECT
    headers = _headers(rows)
    if is_own:
        said = [_said(name, header) for name, header in HEADERS.items() if name in rows.columns]
        headers = F.concat(headers, F.array_compact(F.array(*said)))
    timestamp = F.lit(None) if is_own or "timestamp" not in rows.columns else F.col("timestamp")
    events = rows.select(
        F.lit(partition.topic_id).alias("topic_id"),
        F.lit(partition.number).alias("partition"),
        (F.lit(first_offset) + F.col(f"`{PLACE}`")).cast("bigint").alias("offset"),
        F.lit(0).alias("index"),
        F.lit("report").alias("kind"),
        F.lit(row["source"]).alias("source"),
        F.lit(partition.topic).alias("topic"),
        *((F.col(name) if name in rows.columns else F.lit(None)).cast("binary").alias(name) for name in ("key", "value")),
        headers.alias("headers"),
        timestamp.cast("timestamp").alias("record_timestamp"),
        F.lit(False).alias("stamped_by_broker"),
    )
    return with_unpacked_keys(events, [row])


def _headers(rows: DataFrame) -> Column:
    """The column `headers` as Kafka has headers; empty without one."""
    empty = F.array().cast("array<struct<key: string, value: binary>>")
    if "headers" not in rows.columns:
        return empty
    entries = F.map_entries("headers") if isinstance(rows.schema["headers"].dataType, MapType) else F.col("headers")
    return F.coalesce(
        F.transform(entries, lambda one: F.struct(one["key"].alias("key"), one["value"].cast("binary").alias("value"))), empty
    )


def _said(name: str, header: str) -> Column:
    """A header that says what the column does; null where the column is null."""
    text = F.unix_millis(name).cast("string") if name in TIMES else F.col(name).cast("string")
    return F.when(F.col(name).isNotNull(), F.struct(F.lit(header).alias("key"), text.cast("binary").alias("value")))
