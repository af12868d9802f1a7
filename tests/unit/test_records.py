"""Records that Spark can't read: any timestamp, as it is, and a step that is bounded. From a real broker: tests/loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Producer

from orchestration.kafka import records
from orchestration.kafka.cluster import Partition, Range
from orchestration.kafka.records import UnreadError, read_records
from tests.unit.publisher_kit.mock_cluster import MockCluster

TOPIC = "reports"
NANOSECONDS = 1_700_000_000_000_000_000


def written(brokers: MockCluster, *timestamps: int, value: bytes = b"v") -> dict[str, str]:
    """Writes records with these timestamps; returns the properties of a client."""
    kafka = {"bootstrap.servers": brokers.bootstrap}
    producer = Producer(kafka)
    for number, timestamp in enumerate(timestamps):
        producer.produce(TOPIC, value, str(number), 0, timestamp=timestamp, headers=[("n", b"\xff"), ("n", None)])
    assert producer.flush(10) == 0
    return kafka


def part(begin: int, end: int) -> Range:
    return Range("reports", Partition(TOPIC, "id", 0), begin, end)


def test_records_are_read_with_whatever_timestamp_they_have(mock_cluster: MockCluster) -> None:
    kafka = written(mock_cluster, 1_700_000_000_000, NANOSECONDS, 9_223_372_036_854_775_807)
    read = read_records(kafka, "group", part(0, 3), 1_000_000)
    assert [(row[0], row[4], row[5], row[8]) for row in read.rows] == [
        (b"0", 0, 1_700_000_000_000, None),
        (b"1", 1, NANOSECONDS, None),
        (b"2", 2, 9_223_372_036_854_775_807, None),
    ]
    assert read.rows[0][7] == [("n", b"\xff"), ("n", None)]
    assert (read.end, read.has_odd_ones) == (3, True)


def test_only_the_range_is_read(mock_cluster: MockCluster) -> None:
    kafka = written(mock_cluster, 1, NANOSECONDS, 2, 3)
    read = read_records(kafka, "group", part(2, 3), 1_000_000)
    assert ([row[4] for row in read.rows], read.end, read.has_odd_ones) == ([2], 3, False)


def test_a_step_ends_when_it_has_enough_bytes(mock_cluster: MockCluster) -> None:
    kafka = written(mock_cluster, 1, 2, 3, 4, value=b"v" * 1000)
    read = read_records(kafka, "group", part(0, 4), 1500)
    assert ([row[4] for row in read.rows], read.end) == ([0, 1], 2)
    assert read.size >= 1500


def test_offsets_without_records_are_passed_over(mock_cluster: MockCluster) -> None:
    # as where only the marker of a transaction is left
    kafka = written(mock_cluster, 1)
    read = read_records(kafka, "group", part(0, 2), 1_000_000)
    assert ([row[4] for row in read.rows], read.end) == ([0], 2)


def test_a_partition_that_cannot_be_read_is_said(mock_cluster: MockCluster) -> None:
    kafka = written(mock_cluster, 1)
    with mock_cluster.down(1), pytest.raises(UnreadError, match=r"no record within 0[.]5 s|down|failed"):
        read_records(kafka, "group", part(0, 1), 1_000_000, seconds=0.5)
    with pytest.raises(UnreadError, match="No such configuration property"):
        read_records({**kafka, "nonsense": "x"}, "group", part(0, 1), 1_000_000)


def message(kind: int, millis: int, headers: Any = None) -> Any:
    def read() -> Any:
        if isinstance(headers, Exception):
            raise headers
        return headers

    return cast(
        Any,
        SimpleNamespace(
            timestamp=lambda: (kind, millis), headers=read, key=lambda: b"k", value=lambda: None, topic=lambda: "t", partition=lambda: 0,
            offset=lambda: 7,
        ),
    )  # fmt: skip


def test_headers_that_cannot_be_read_are_none_and_said() -> None:
    row = records._row(message(TIMESTAMP_CREATE_TIME, 5, UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")))
    assert (row[7], row[8]) == (None, "headers")
    assert records._has_odd_ones([row])


@pytest.mark.parametrize(
    ("kind", "millis", "told"),
    [(TIMESTAMP_CREATE_TIME, 5, (5, 0)), (TIMESTAMP_LOG_APPEND_TIME, 5, (5, 1)), (TIMESTAMP_NOT_AVAILABLE, 0, (-1, 0))],
)
def test_timestamps_are_told_as_spark_tells_them(kind: int, millis: int, told: tuple[int, int]) -> None:
    row = records._row(message(kind, millis))
    assert (row[5], row[6]) == told
    assert not records._has_odd_ones([row])
