"""What arrives in Kafka, and what the results say of it, when nothing goes wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from publisher import READY, RESULTS, epoch_ms, publish, session
from tests.unit.publisher_kit.mock_cluster import MockCluster
from tests.unit.publisher_kit.rows import NOW, SLOT, outcomes, plain, publish_records, ready, send, settings_for, stops

EXACT: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    ("all null", None, None, None),
    ("all empty", b"", b"", []),
    ("null value, a tombstone", b"k", None, None),
    ("null key", None, b"v", None),
    ("not UTF-8", b"\xff\xfe\x00", b"\x00\xc3\x28", [("h", b"\xff\x00")]),
    ("null and empty header values", b"k", b"v", [("null", None), ("empty", b"")]),
    ("a header twice, in order", b"k", b"v", [("b", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"1")]),
    ("odd header names", b"k", b"v", [("", b"1"), ("ümläut", b"2"), (" spaced ", b"3")]),
]


def test_bytes_arrive_as_they_were(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    rows = [{"topic": topic, "key": key, "value": value, "headers": headers} for _, key, value, headers in EXACT]

    results = send(rows, settings_for(mock_cluster.bootstrap))

    assert set(outcomes(results).values()) == {"delivered"}
    for (what, key, value, headers), message in zip(EXACT, mock_cluster.read(topic, len(EXACT)), strict=True):
        # On the wire, no headers and an empty list of headers are the same.
        assert (message.key(), message.value(), message.headers() or None) == (key, value, headers or None), what


def test_headers_stay_with_their_row_in_a_sliced_batch(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    headers = [None, [("a", b"0")], [], [("b", b"1"), ("c", None)], None, [("d", b"2")]]
    whole = ready({"topic": topic, "headers": each} for each in headers)

    send([whole.slice(1, 4)], settings_for(mock_cluster.bootstrap))

    messages = mock_cluster.read(topic, 4)
    assert [message.headers() or None for message in messages] == [each or None for each in headers[1:5]]


def test_a_result_says_where_the_copy_lies_and_whose_it_is(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t", partitions=3)
    wanted = [2, 0, 2, 1, 0, 2]
    rows = [{"topic": topic, "partition": partition, "kind": "dead_letter"} for partition in wanted]

    results = send(rows, settings_for(mock_cluster.bootstrap))

    assert [(row["delivery_id"], row["partition"], row["offset"]) for row in results] == [
        ("d0", 2, 0),
        ("d1", 0, 0),
        ("d2", 2, 1),
        ("d3", 1, 0),
        ("d4", 0, 1),
        ("d5", 2, 2),
    ]
    assert {key: value for key, value in results[3].items() if value is not None} == {
        "delivery_id": "d3",
        "due_at": NOW,
        "kind": "dead_letter",
        "message_id": "group:orders/0/3",
        "outcome": "delivered",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "sent_at": NOW,
        "slot": SLOT,
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": 3,
    }


# Hashes as Kafka's own tests have them (org.apache.kafka.common.utils.UtilsTest.testMurmur2).
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("wanted", [None, -1, 10, 2_000_000_000])
def test_without_a_usable_partition_the_key_decides_as_in_java(mock_cluster: MockCluster, wanted: int | None) -> None:
    topic = mock_cluster.create("t", partitions=10)

    results = send([{"topic": topic, "partition": wanted, "key": key} for key in MURMUR2], settings_for(mock_cluster.bootstrap))

    assert [row["partition"] for row in results] == [(hashed & 0x7FFFFFFF) % 10 for hashed in MURMUR2.values()]


def test_the_places_of_rows_with_and_without_a_partition_are_not_mixed_up(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t", partitions=3)
    rows = [{"topic": topic, "partition": None if n % 2 else n % 3} for n in range(60)]

    results = send(rows, settings_for(mock_cluster.bootstrap))

    keys = {
        (partition, message.offset()): message.key()
        for partition in range(3)
        for message in mock_cluster.read(topic, mock_cluster.end(topic, partition) - 1, partition)
    }
    assert all(keys[row["partition"], row["offset"]] == f"k{row['delivery_id'][1:]}".encode() for row in results)


def test_rows_of_a_partition_keep_their_order_over_transactions_and_batches(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    rows = ready({"topic": topic} for _ in range(95))

    results = send([rows.slice(0, 30), rows.slice(30, 1), rows.slice(31)], settings_for(mock_cluster.bootstrap, max_rows=20))

    assert [row["delivery_id"] for row in results] == [f"d{n}" for n in range(95)]
    # Five transactions, each with a commit marker.
    assert mock_cluster.end(topic) == 95 + 5
    assert [message.key() for message in mock_cluster.read(topic, 95)] == [f"k{n}".encode() for n in range(95)]


def test_the_time_of_sending_is_not_before_the_timestamp_that_kafka_keeps(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    batch = ready({"topic": topic} for _ in range(2_500))

    results = [row for out in publish_records([batch], settings_for(mock_cluster.bootstrap), SLOT, epoch_ms) for row in plain(out)]

    for row, message in zip(results, mock_cluster.read(topic, 2_500), strict=True):
        _, timestamp = message.timestamp()
        assert 0 <= round(row["sent_at"].timestamp() * 1000) - timestamp < 1_000


def test_results_have_the_agreed_schema(mock_cluster: MockCluster) -> None:
    rows = ready([{"topic": mock_cluster.create("t")}, {"topic": "missing"}, {"topic": "not legal"}])

    for batch in publish_records([rows], settings_for(mock_cluster.bootstrap), SLOT, epoch_ms):
        assert batch.schema == RESULTS


@pytest.mark.parametrize("batches", [[], [pa.RecordBatch.from_pylist([], schema=READY)]], ids=["no batch", "no row"])
def test_without_rows_no_client_is_made(batches: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a producer for no rows")

    monkeypatch.setattr(session, "make_producer", forbidden)

    assert list(publish(iter(batches), settings_for("127.0.0.1:1"), SLOT)) == []


def test_several_topics_share_a_transaction(mock_cluster: MockCluster) -> None:
    first, second = mock_cluster.create("first"), mock_cluster.create("second")

    results = send([{"topic": first}, {"topic": second}] * 3, settings_for(mock_cluster.bootstrap))

    assert stops(results) == []
    assert [row["topic"] for row in results] == [first, second] * 3
    assert [message.key() for message in mock_cluster.read(first, 3)] == [b"k0", b"k2", b"k4"]
