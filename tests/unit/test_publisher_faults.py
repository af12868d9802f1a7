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
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from publisher import PublisherSettings, destinations, handover
from publisher.clients import DEFAULT_BATCH_SIZE
from publisher.generation import refuse_superseded
from publisher.session import Session
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


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        pytest.param(lambda cluster: cluster.delay(Api.END_TXN, 4_000), ["unknown", "stopped"], id="a commit without an answer"),
        pytest.param(lambda cluster: cluster.fail(Api.END_TXN, 48), ["unknown", "stopped"], id="a commit that is refused"),
        pytest.param(lambda cluster: cluster.fail(Api.PRODUCE, 47, 47), ["stopped"], id="fenced twice"),
        pytest.param(lambda cluster: cluster.fail(Api.ADD_PARTITIONS_TO_TXN, 49), ["stopped"], id="a producer that Kafka has forgotten"),
        pytest.param(lambda cluster: cluster.fail(Api.PRODUCE, 45), ["stopped"], id="a sequence number that is not the next"),
    ],
)
def test_a_session_that_stays_open_sends_again_after_a_loss(
    mock_cluster: MockCluster, script: Callable[[MockCluster], None], lost: list[str]
) -> None:
    mock_cluster.create(A)
    settings = settings_for(mock_cluster.bootstrap)
    session = Session(settings, SLOT, refuse_superseded, stays_open=True)

    def sent() -> list[str]:
        results = publish_records([ready([{"topic": A}])], settings, SLOT, lambda: NOW_MS, session)
        return [row["outcome"] for batch in results for row in plain(batch)]

    assert sent() == ["delivered"]
    producer = session._producer
    assert sent() == ["delivered"]
    assert session._producer is producer, "it stays open"
    script(mock_cluster)
    assert sent() == lost
    assert sent() == ["delivered"]
    session.close()


def test_a_session_that_was_idle_for_long_gets_a_new_producer(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka forgets a producer that sends nothing for days."""
    mock_cluster.create(A)
    with Session(settings_for(mock_cluster.bootstrap), SLOT, refuse_superseded) as session:
        first = session.producer(DEFAULT_BATCH_SIZE, A)
        assert session.producer(DEFAULT_BATCH_SIZE, A) is first
        monkeypatch.setattr(session, "_used", time.monotonic() - 4_000)
        assert session.producer(DEFAULT_BATCH_SIZE, A) is not first


def test_what_a_producer_has_reported_explains_nothing_of_the_next(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    with Session(settings_for(mock_cluster.bootstrap), SLOT, refuse_superseded) as session:
        session.background.hopeless = KafkaError(KafkaError._AUTHENTICATION, "a login that was refused before it was repaired")
        mock_cluster.answer(Api.INIT_PRODUCER_ID, (0, 700))
        session.producer(DEFAULT_BATCH_SIZE, A)


def test_a_producer_ends_when_its_requests_are_answered(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    mock_cluster.answer(Api.PRODUCE, (47, 0), (47, 300))
    reported: list[int] = []

    def note(error: KafkaError | None, _: Message) -> None:
        assert error is not None
        reported.append(error.code())

    with Session(settings_for(mock_cluster.bootstrap), SLOT, refuse_superseded) as session:
        producer = session.producer(DEFAULT_BATCH_SIZE, A)
        producer.begin_transaction()
        for topic in (A, B):
            producer.produce(topic, b"value", on_delivery=note)
        with pytest.raises(KafkaException, match="fenced"):
            producer.poll(10)

        session.close()

    # an answer that came while librdkafka's threads end would free the fence's text a second time, and the process with it
    assert reported == [KafkaError.INVALID_PRODUCER_EPOCH] * 2


def test_a_fence_is_told_whatever_is_reported_after_it(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    # twice: the first fence is made up for
    mock_cluster.answer(Api.PRODUCE, *[(47, 0), (47, 300)] * 2)
    # one flush, which reads the second report while the exception of the fence is pending
    monkeypatch.setattr(handover, "_GLANCE", 1.0)

    results = send([{"topic": A}, {"topic": B}], settings_for(mock_cluster.bootstrap))

    assert (outcomes(results), stops(results)) == ({}, [(None, -144, "fenced")])


def test_a_fence_is_made_up_for_once_in_a_call(mock_cluster: MockCluster) -> None:
    mock_cluster.create(A)
    # the first load twice, the second once, then the third
    mock_cluster.fail(Api.PRODUCE, 47, 0, 0, 47)

    results = send([{"topic": A}] * 4, settings_for(mock_cluster.bootstrap, max_rows=1))

    assert outcomes(results) == {"d0": "delivered", "d1": "delivered"}
    assert stops(results) == [(None, -144, "fenced")]


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


def test_a_session_that_ends_badly_keeps_the_results(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mock_cluster.create(A)
    close = Session.close

    def close_and_fail(session: Session) -> None:
        close(session)
        raise SystemError("a callback of librdkafka's")

    monkeypatch.setattr(Session, "__exit__", lambda session, *_: close_and_fail(session))

    results = send([{"topic": A}], settings_for(mock_cluster.bootstrap))

    assert (outcomes(results), stops(results)) == ({"d0": "delivered"}, [(None, -143, "retriable")])


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
