"""A session's producer: when it is kept and when it is not, and that what has been sent keeps its results."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from publisher import handover
from publisher.clients import DEFAULT_BATCH_SIZE
from publisher.generation import refuse_superseded
from publisher.session import Session
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster
from tests.unit.publisher_kit.rows import NOW_MS, SLOT, outcomes, plain, publish_records, ready, send, settings_for, stops

A, B = "a", "b"


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
    # both are on their way when the first answer comes, also on a busy machine
    mock_cluster.answer(Api.PRODUCE, (47, 500), (47, 800))
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


def test_a_session_that_ends_badly_keeps_the_results(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mock_cluster.create(A)
    close = Session.close

    def close_and_fail(session: Session) -> None:
        close(session)
        raise SystemError("a callback of librdkafka's")

    monkeypatch.setattr(Session, "__exit__", lambda session, *_: close_and_fail(session))

    results = send([{"topic": A}], settings_for(mock_cluster.bootstrap))

    assert (outcomes(results), stops(results)) == ({"d0": "delivered"}, [(None, -143, "retriable")])
