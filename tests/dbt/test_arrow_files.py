"""Rows that the loop writes itself are in the same files, for all who read them, as rows that Spark writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from orchestration.clock import LoopClock
from orchestration.loop.circuit_breaker import CircuitBreaker
from orchestration.loop.consumer_progress import Awaited, Place
from orchestration.loop.health import Reason
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.state import LoopState
from orchestration.loop.stored import Stored
from orchestration.loop.window import PausedDestination, SendWindow
from orchestration.tables.arrow_files import ArrowFiles
from orchestration.tables.rows import collected
from orchestration.tables.spark import iceberg_table
from publisher import RESULTS
from tests.dbt.harness import Home

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

# the second has a partition of its own, and lies before all of Kafka
GIVEN: list[dict[str, Any]] = [
    {
        "delivery_id": "a#1",
        "due_at": NOON,
        "kind": "publish",
        "message_id": "outbox:orders/ä\U0001f600",
        "topic": "orders",
        "offset": 2**62,
    },
    {"delivery_id": "b#1", "due_at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "outcome": "delivered", "slot": 3},
    {"delivery_id": "c#1", "due_at": NOON.replace(minute=59, second=59, microsecond=999_999), "error_message": "", "offset": 0},
    {"due_at": NOON.replace(hour=13), "topic": "x" * 100, "error_code": -195, "sent_at": NOON, "not_before": NOON},
]


def test_both_ways_make_the_same_rows_and_metadata(home: Home) -> None:
    needed = {field.name: "x" for field in RESULTS if not field.nullable}
    rows = pa.Table.from_pylist([{**needed, **row} for row in GIVEN], schema=RESULTS)
    ledgers, table = home._ledgers, f"{home.schema}.publish_results"
    batches = [ledgers.append("publish_results", way, home.now) for way in (home.spark.createDataFrame(rows).coalesce(1), rows)]

    def read(query: str) -> list[dict[str, Any]]:
        return [*home.spark.sql(query).toArrow().to_pylist()]

    spark, arrow = (read(f"select * except (batch) from {table} where batch = {batch} order by due_at") for batch in batches)
    assert len(arrow) == len(GIVEN)
    assert arrow == spark

    def files(batch: int) -> list[dict[str, Any]]:
        """What Iceberg knows of files, but their sizes and ids."""
        found = read(
            f"""
            select partition, record_count, readable_metrics, spec_id, sort_order_id, file_format from {table}.files
            where readable_metrics.batch.lower_bound = {batch} order by partition.due_at_hour
            """
        )
        for file in found:
            del file["readable_metrics"]["batch"]
            for bounds in file["readable_metrics"].values():
                del bounds["column_size"]
        return found

    assert [file["record_count"] for file in files(batches[1])] == [1, 2, 1]
    assert files(batches[1]) == files(batches[0])


def test_many_rows_are_in_small_groups_in_their_order(home: Home) -> None:
    count = 100_000
    given = {
        "delivery_id": pa.array([f"outbox:orders/{number}#direct.00000000.1f" for number in range(count)]),
        "due_at": pa.repeat(pa.scalar(NOON, RESULTS.field("due_at").type), count),
        "offset": pa.array(range(count), pa.int64()),
    }
    batch = home._ledgers.append("publish_results", pa.table(given), home.now)
    table = f"{home.schema}.publish_results"
    (file,) = home.spark.sql(f"select record_count from {table}.files where readable_metrics.batch.lower_bound = {batch}").collect()
    groups = home.spark.sql(f"select count(*) as rows from {table} where batch = {batch} and offset between 50000 and 50009").collect()
    assert (file["record_count"], groups[0]["rows"]) == (count, 10)
    read = home.spark.sql(f"select offset from {table} where batch = {batch}").toArrow()["offset"].to_pylist()
    assert read == [*range(count)]


def test_the_state_of_the_loop_is_the_same_row_both_ways(home: Home) -> None:
    breaker = CircuitBreaker(NOON, "TimeoutError", next_probe=NOON, floor=NOON, probes=2)
    paused = PausedDestination(Reason("it is missing", "UNKNOWN_TOPIC_OR_PART"), NOON, floor=NOON)
    state = LoopState(
        tick=1_000_000,
        kind="tick",
        generation=home._ledgers.generation,
        instance="ä",
        watermark=2**40,
        loop_time=NOON,
        window=SendWindow(NOON, {"orders": paused}),
        slots=4,
        offsets=SourceOffsets({"a/0": 2**50, "b/1": 0}, frozenset(["failures"])),
        breakers={"orders/billing": breaker},
        outboxes={"orders": OutboxPosition(3, 2, adopts=True)},
        settled={Place("billing", "orders", 0): 5},
        awaited=(Awaited(Place("billing", "orders", 1), 9, 8),),
        counts={"delivered": 3},
        unrecorded_since=NOON,
    )
    ledgers, table = home._ledgers, f"{home.schema}.ticks"
    row = Stored(home.spark, home.schema, ledgers, LoopClock(None)).row(state)
    batches = [ledgers.append("ticks", way, home.now) for way in (home.spark.createDataFrame(row), row)]
    spark, arrow = (home.spark.sql(f"select * except (batch) from {table} where batch = {one}").toArrow().to_pylist() for one in batches)
    assert arrow == spark
    (read,) = collected(home.spark.sql(f"select * from {table} where batch = {batches[1]}"))
    assert LoopState.from_row(read) == state
    partitions = home.spark.sql(f"select distinct partition from {table}.files where readable_metrics.batch.lower_bound in {(*batches,)}")
    assert [row["partition"]["batch_trunc"] for row in partitions.collect()] == [batches[1] // 10_000 * 10_000]


@pytest.mark.parametrize(
    ("columns", "partition", "why"),
    [
        ("due_at timestamp", "days(due_at)", "is partitioned by day"),
        ("due_at timestamp, batch bigint", "hours(due_at), truncate(10, batch)", r"is partitioned by hour, truncate\[10\]"),
        ("topic string", "truncate(10, topic)", r"is partitioned by truncate\[10\]"),
        ("due_at timestamp, price double", "hours(due_at)", "has a column of type double"),
    ],
)
def test_a_table_that_is_made_otherwise_is_refused(home: Home, columns: str, partition: str, why: str) -> None:
    table = f"{home.schema}.made_otherwise"
    home.spark.sql(f"create table {table} ({columns}) using iceberg partitioned by ({partition})")
    with pytest.raises(ValueError, match=f"can't be written this way: it {why}"):
        ArrowFiles(home.spark, iceberg_table(home.spark, table))
    home.spark.sql(f"drop table {table} purge")
