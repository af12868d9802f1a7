"""What the results say when Kafka can't or won't: who is charged, who is left alone, and that the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from publisher import PublisherSettings, destinations
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster
from tests.unit.publisher_kit.rows import NOW, NOW_MS, SLOT, outcomes, plain, publish_records, ready, send, settings_for, stops

A, B = "a", "b"


@dataclass(frozen=True)
class Case:
    """Two rows for topic `a` (d0, d2) and two for topic `b` (d1, d3), and what becomes of them under a script."""

    what: str
    script: Callable[[MockCluster], None]
    a: str | None
    b: str | None
    stops: list[tuple[str | None, int, str]] = field(default_factory=list)
    code: int | None = None
    """The error code of the rows that are not delivered."""


CASES = [
    Case("nothing goes wrong", lambda cluster: None, "delivered", "delivered"),
    Case(
        "errors that pass are waited for",
        lambda cluster: cluster.fail(Api.PRODUCE, 6, 19, 7),
        "delivered",
        "delivered",
    ),
    Case(
        "a coordinator that is loading is waited for",
        lambda cluster: cluster.fail(Api.END_TXN, 14, 51),
        "delivered",
        "delivered",
    ),
    Case(
        "a topic that refuses a batch by ACL is charged, the other goes on",
        lambda cluster: cluster.fail_produce(A, 29),
        "failed",
        "delivered",
        code=29,
    ),
    Case(
        "a topic that refuses to join the transaction is found by trying each alone",
        lambda cluster: cluster.fail(Api.ADD_PARTITIONS_TO_TXN, 29, 29, 0),
        "failed",
        "delivered",
        code=29,
    ),
    Case(
        "a topic that refuses to be described is charged, the other goes on",
        lambda cluster: cluster.break_topic(A, 29),
        "failed",
        "delivered",
        code=29,
    ),
    Case(
        "an unknown code closes nothing and stops one destination only",
        lambda cluster: cluster.fail_produce(A, 999),
        None,
        "delivered",
        [(A, 999, "retriable")],
    ),
    Case(
        "a topic without a leader is paused",
        lambda cluster: cluster.break_topic(A, 5),
        None,
        "delivered",
        [(A, 5, "retriable")],
    ),
    Case(
        "a fence while the generation is ours is made up for",
        lambda cluster: cluster.fail(Api.PRODUCE, 47),
        "delivered",
        "delivered",
    ),
    Case(
        "a second fence stops everything",
        lambda cluster: cluster.fail(Api.PRODUCE, *[47] * 4),
        None,
        None,
        [(None, -144, "fenced")],
    ),
    Case(
        "a refused init stops everything",
        lambda cluster: cluster.fail(Api.INIT_PRODUCER_ID, 53),
        None,
        None,
        [(None, 53, "fatal")],
    ),
    Case(
        "a commit that is refused delivers nothing",
        lambda cluster: cluster.fail(Api.END_TXN, 67),
        None,
        None,
        [(None, 67, "retriable")],
    ),
    Case(
        "a commit without an answer is unknown",
        lambda cluster: cluster.delay(Api.END_TXN, 30_000),
        "unknown",
        "unknown",
        [(None, -185, "retriable")],
        code=-185,
    ),
    Case(
        "a fence at the commit may have come after it: unknown",
        lambda cluster: cluster.fail(Api.END_TXN, 90),
        "unknown",
        "unknown",
        [(None, -144, "fenced")],
        code=-144,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_outcome(mock_cluster: MockCluster, case: Case) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    case.script(mock_cluster)

    results = send([{"topic": A}, {"topic": B}] * 2, settings_for(mock_cluster.bootstrap))

    wanted = {"d0": case.a, "d1": case.b, "d2": case.a, "d3": case.b}
    assert outcomes(results) == {delivery: outcome for delivery, outcome in wanted.items() if outcome}
    assert stops(results) == case.stops
    for row in results:
        if row["outcome"] != "stopped":
            assert row["error_code"] == (None if row["outcome"] == "delivered" else case.code)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_where_all_failed_sends_count_whatever_was_not_sent_has_failed(mock_cluster: MockCluster, case: Case) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    case.script(mock_cluster)
    rows = [{"topic": A, "publish_charge": "all"}, {"topic": B, "publish_charge": "record"}] * 2

    results = send(rows, settings_for(mock_cluster.bootstrap))

    # what is unknown may have been delivered; and the other route is charged as before
    wanted = {"d0": case.a or "failed", "d1": case.b, "d2": case.a or "failed", "d3": case.b}
    assert outcomes(results) == {delivery: outcome for delivery, outcome in wanted.items() if outcome}
    assert stops(results) == case.stops
    if case.a is None:
        ((_, code, kind),) = case.stops
        assert {(row["error_code"], row["error_kind"]) for row in results if row["outcome"] == "failed"} == {(code, kind)}


def test_an_unknown_outcome_says_when_it_may_be_sent_again(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    mock_cluster.delay(Api.END_TXN, 30_000)

    (row, _) = send([{"topic": A}], settings_for(mock_cluster.bootstrap, transaction_timeout_ms=4_000))

    assert (row["outcome"], row["topic"], row["partition"], row["offset"]) == ("unknown", A, None, None)
    assert (row["sent_at"], row["not_before"]) == (NOW, NOW + timedelta(seconds=4))


def test_a_missing_topic_is_paused_at_once_and_not_created(mock_cluster: MockCluster) -> None:
    mock_cluster.create(B)
    began = time.monotonic()

    results = send([{"topic": "missing"}, {"topic": B}] * 2, settings_for(mock_cluster.bootstrap))

    assert time.monotonic() - began < 2
    assert (outcomes(results), stops(results)) == (
        {"d1": "delivered", "d3": "delivered"},
        [("missing", 3, "retriable")],
    )
    again = send([{"topic": "missing"}], settings_for(mock_cluster.bootstrap))
    assert stops(again) == [("missing", 3, "retriable")]


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "ümläut", "a" * 250, "a/b", "a\0b"])
def test_an_illegal_topic_name_is_refused_without_asking(mock_cluster: MockCluster, name: str) -> None:
    mock_cluster.create(B)

    results = send([{"topic": name}, {"topic": B}], settings_for(mock_cluster.bootstrap))

    assert outcomes(results) == {"d0": "failed", "d1": "delivered"}
    assert (results[0]["error_code"], results[0]["error_kind"]) == (17, "poison")


@pytest.mark.parametrize("name", [None, "a\0b"])
def test_a_header_that_would_not_arrive_as_it_is_fails_its_record_only(mock_cluster: MockCluster, name: str | None) -> None:
    mock_cluster.create(A)
    rows = [{"topic": A, "headers": [("ok", b"1"), (name, b"2")] if n == 1 else [("ok", b"1")]} for n in range(3)]

    results = send(rows, settings_for(mock_cluster.bootstrap))

    assert outcomes(results) == {"d0": "delivered", "d1": "failed", "d2": "delivered"}


def test_nobody_listening_is_told_not_raised() -> None:
    results = send([{"topic": A}, {"topic": B}], settings_for("127.0.0.1:1", metadata_timeout_ms=500))

    assert outcomes(results) == {}
    ((topic, code, kind),) = stops(results)
    assert (topic, kind) == (None, "retriable")
    assert code in (-185, -187, -195)


def test_a_refused_login_is_told_at_once_and_without_the_password(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    login = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "hunter2-s3cret",
    }
    began = time.monotonic()

    results = send([{"topic": A}], settings_for(mock_cluster.bootstrap, metadata_timeout_ms=60_000, kafka=login))

    assert time.monotonic() - began < 30
    assert stops(results) == [(None, -169, "fatal")]
    assert "hunter2-s3cret" not in str(results)


def test_a_broker_that_dies_between_transactions_keeps_the_results_before(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    rows = ready({"topic": A} for _ in range(20))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows.slice(0, 10)
        with mock_cluster.down():
            yield rows.slice(10)

    results = [
        row
        for batch in publish_records(batches(), settings_for(mock_cluster.bootstrap, max_rows=10), SLOT, lambda: NOW_MS)
        for row in plain(batch)
    ]

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(10)}
    assert len(stops(results)) == 1


def test_a_source_that_fails_after_a_commit_keeps_the_results_before(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)

    def batches() -> Iterator[pa.RecordBatch]:
        yield ready({"topic": A} for _ in range(10))
        raise OSError("the disk is gone")

    results = [
        row
        for batch in publish_records(batches(), settings_for(mock_cluster.bootstrap, max_rows=10), SLOT, lambda: NOW_MS)
        for row in plain(batch)
    ]

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(10)}
    assert stops(results) == [(None, -143, "retriable")]
    assert results[-1]["error_message"].startswith("OSError: the disk is gone (test_publisher_faults.py:")


def test_a_source_that_fails_before_any_commit_is_told_not_raised() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise OSError("the disk is gone")
        yield

    (row,) = (row for batch in publish_records(batches(), settings_for("127.0.0.1:1"), SLOT, lambda: NOW_MS) for row in plain(batch))

    assert stops([row]) == [(None, -143, "retriable")]
    assert row["error_message"].startswith("OSError: the disk is gone (test_publisher_faults.py:")


@pytest.mark.parametrize("said", [None, "", "unlimited"])
def test_a_size_limit_that_is_not_shown_is_no_limit(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, said: str | None) -> None:
    def hidden(_: AdminClient, resources: list[ConfigResource], **__: object) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        answer: Future[dict[str, ConfigEntry]] = Future()
        answer.set_result({"max.message.bytes": ConfigEntry("max.message.bytes", said)})
        return dict.fromkeys(resources, answer)

    # the mock cluster knows no configs
    monkeypatch.setattr(AdminClient, "describe_configs", hidden)
    mock_cluster.create(A)

    results = send([{"topic": A}], settings_for(mock_cluster.bootstrap))

    assert (outcomes(results), stops(results)) == ({"d0": "delivered"}, [])


def test_a_stopped_destination_stays_stopped_for_the_rest_of_the_call(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    mock_cluster.fail_produce(A, 999)

    results = send([{"topic": A}, {"topic": B}] * 10, settings_for(mock_cluster.bootstrap, max_rows=4))

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(1, 20, 2)}
    assert stops(results) == [(A, 999, "retriable")]


def test_a_topic_that_refuses_all_is_not_tried_again_in_the_call(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    mock_cluster.fail_produce(A, 29)

    results = send([{"topic": A}, {"topic": B}] * 10, settings_for(mock_cluster.bootstrap, max_rows=4))

    assert outcomes(results) == {f"d{n}": "delivered" if n % 2 else "failed" for n in range(20)}
    assert mock_cluster.end(A) == 0


def test_destinations_are_described_once_and_again_after_trouble(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    ask = destinations._ask

    def noted(topics: list[str], settings: PublisherSettings) -> Any:
        if topics:
            asked.append(topics)
        return ask(topics, settings)

    monkeypatch.setattr(destinations, "_ask", noted)
    mock_cluster.create(A)
    mock_cluster.create(B)
    settings = settings_for(mock_cluster.bootstrap)

    send([{"topic": A}, {"topic": B}], settings)
    send([{"topic": A}], settings)
    mock_cluster.fail_produce(A, 999)
    send([{"topic": A}], settings)
    send([{"topic": A}, {"topic": B}], settings)

    assert asked == [[A, B], [A]]
