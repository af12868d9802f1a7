"""What records become when they are taken in: any timestamp, and what they weigh. From a real topic: tests/loop."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from orchestration.kafka.cluster import Partition, Range
from orchestration.kafka.records import RECORDS
from orchestration.loop.event_rows import as_events, measures
from tests.dbt.harness import Home, report


def events(home: Home, *records: tuple[Any, ...]) -> Any:
    """Records of two partitions of a topic, the second of which was cut short before, as events."""
    parts = [Range("a", Partition("things", "id", 0), 0, 9), Range("a", Partition("things", "id~7", 1), 0, 9)]
    parts.append(Range("b", Partition("others", "other-id", 0), 0, 9))
    return as_events(home.spark.createDataFrame(list(records), RECORDS), parts)


def record(
    offset: int, *, millis: int = 0, topic: str = "things", partition: int = 0, headers: Any = None, problem: str | None = None
) -> Any:
    return (b"k", b"v" * 100, topic, partition, offset, millis, 0, headers, problem)


@pytest.mark.parametrize(
    ("millis", "problem", "kept", "detail"),
    [
        (1_700_000_000_000, None, 1_700_000_000_000, None),
        (0, None, 0, None),
        (-1, None, None, None),
        (253_402_300_799_999, None, 253_402_300_799_999, None),
        (253_402_300_800_000, None, None, "timestamp 253402300800000"),
        (1_700_000_000_000_000_000, None, None, "timestamp 1700000000000000000"),
        (-5, None, None, "timestamp -5"),
        (5, "headers", 5, "headers"),
        (-(2**63), "headers", None, "timestamp -9223372036854775808, headers"),
    ],
)
def test_a_timestamp_that_no_clock_tells_is_none_and_said(
    home: Home, millis: int, problem: str | None, kept: int | None, detail: str | None
) -> None:
    taken = events(home, record(3, millis=millis, problem=problem))
    (row,) = taken.selectExpr("offset", "unix_millis(record_timestamp) as millis", "detail", "topic_id").collect()
    assert (row["offset"], row["millis"], row["detail"], row["topic_id"]) == (3, kept, detail, "id")


def test_each_partition_has_the_id_under_which_it_is_read(home: Home) -> None:
    taken = events(home, record(3), record(3, partition=1), record(3, topic="others"))
    assert {(row["topic_id"], row["partition"], row["source"]) for row in taken.select("topic_id", "partition", "source").collect()} == {
        ("id", 0, "a"),
        ("id~7", 1, "a"),
        ("other-id", 0, "b"),
    }


def test_what_could_not_be_read_of_a_record_is_a_problem_of_its_report_and_nothing_more(home: Home) -> None:
    odd = report("odd-things").but(detail="timestamp 1700000000000000000")
    (input_id,) = home.append_reports(odd)
    home.decide()
    decision = home.decisions()[input_id]
    assert (decision["decision"], decision["attempt"], decision["problems"]) == ("retry", 1, ["record"])


def test_the_weight_of_records_is_counted_by_source_with_their_headers(home: Home) -> None:
    stack = [Row(key="stack", value=b"x" * 20_000), Row(key="none", value=None)]
    taken = events(home, record(1), record(2, headers=stack), record(1, topic="others"))
    (seen,) = taken.agg(*measures(["a", "b"])).collect()
    light = 1 + 100 + 512
    assert (seen["rows0"], seen["bytes0"]) == (2, 2 * light + 20_000 + len("stack") + len("none") + 2 * 48)
    assert (seen["rows1"], seen["bytes1"]) == (1, light)
