"""What becomes of a redrive's canaries, by tables of a few rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from orchestration.loop.canaries import canaries_of
from tests.dbt.harness import Home

# by message: what was decided about its order, in batch 6, and what came later: batch, decision, report topic, life cycle
MESSAGES: dict[str, tuple[str, list[tuple[int, str, str | None, int]], int | None]] = {
    "sent": ("redrive", [], None),
    "failed twice": ("redrive", [(9, "dead_letter", "reports", 2), (8, "retry", "reports", 2)], 8),
    "refused by Kafka": ("redrive", [(9, "parked", None, 2)], 9),
    "cancelled": ("redrive", [(8, "cancelled", None, 2)], 8),
    "its report is decided anew": ("retry", [], None),
    "on its way already": ("duplicate", [], None),
    "its order is refused": ("refused", [], 6),
    "failed in a later life cycle": ("redrive", [(8, "retry", "reports", 3)], None),
    "failed in the life cycle before": ("redrive", [(5, "dead_letter", "reports", 1)], None),
    "reported twice": ("redrive", [(8, "duplicate", "reports", 2)], None),
    "others follow it": ("redrive", [(8, "follows", "reports", 2)], None),
    "it waits for an earlier one": ("follows", [], None),
    "it has waited, and failed": ("follows", [(8, "retry", "reports", 2)], 8),
}


@pytest.fixture
def spark(home: Home) -> Iterator[SparkSession]:
    """A session that has these rows as tables of the schema `global_temp`."""
    orders, decisions = [], []
    for place, (message, (decision, later, _)) in enumerate(MESSAGES.items()):
        orders.append(("loop", 0, 60, place, "redrive", "c", 6))
        decided_anew = "reports" if decision == "retry" else None
        decisions.append((f"loop/0/60/{place}", 6, decision, message, 2, "orders", decided_anew))
        decisions += [
            (f"reports/0/{place}/{number}", batch, said, message, life_cycle, "orders", topic)
            for number, (batch, said, topic, life_cycle) in enumerate(later)
        ]
    views = {
        "events": (orders, "topic_id string, partition int, offset bigint, index int, kind string, command string, batch bigint"),
        "deliveries": (
            decisions,
            "input_id string, batch bigint, decision string, message_id string, life_cycle int, original_topic string, report_topic string",
        ),
        "publish_results": (
            [],
            "message_id string, batch bigint, outcome string, kind string, consumer_group string, topic string, partition int,"
            "offset bigint, sent_at timestamp",
        ),
        "ticks": (
            [],
            "batch bigint, recorded_at timestamp,"
            "settled array<struct<consumer_group: string, topic: string, partition: int, offset: bigint>>",
        ),
    }
    for name, (rows, columns) in views.items():
        home.spark.createDataFrame(rows, columns).createGlobalTempView(name)
    yield home.spark
    for name in views:
        home.spark.catalog.dropGlobalTempView(name)


def test_in_which_batch_a_canary_has_failed(spark: SparkSession) -> None:
    found = canaries_of(spark, "global_temp", "c", 4, len(MESSAGES))
    assert {row["message_id"]: row["failed_in"] for row in found} == {message: failed_in for message, (*_, failed_in) in MESSAGES.items()}
    assert {row["issued_in"] for row in found} == {6}


def test_only_the_first_messages_of_the_command_are_canaries(spark: SparkSession) -> None:
    assert {row["message_id"] for row in canaries_of(spark, "global_temp", "c", 4, 2)} == {"sent", "failed twice"}
    assert canaries_of(spark, "global_temp", "another", 4, 2) == []
