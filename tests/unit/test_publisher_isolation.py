"""One record that brokers refuse among many: that one alone is charged, the others are delivered."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher import PublisherSettings, destinations, publishing, sending
from publisher.destinations import Destination
from publisher.errors import SessionLostError, Trouble
from publisher.sending import Aborted, Sent
from tests.unit.publisher_kit.mock_cluster import MockCluster
from tests.unit.publisher_kit.rows import NOW_MS, outcomes, plain, send, settings_for, stops

TOO_LARGE = 10


@pytest.mark.parametrize("bad", [0, 42, 99])
def test_a_record_above_the_limit_of_its_topic_is_not_even_sent(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    topic, other = mock_cluster.create("t"), mock_cluster.create("other")
    monkeypatch.setattr(destinations, "_limits", lambda *_: {topic: 2_000})
    rows = [{"topic": topic, "value": b"x" * (3_000 if n == bad else 300)} for n in range(100)]

    results = send([*rows, {"topic": other, "value": b"x" * 3_000}], settings_for(mock_cluster.bootstrap))

    assert outcomes(results) == {f"d{n}": "failed" if n == bad else "delivered" for n in range(101)}
    (refused,) = (row for row in results if row["outcome"] == "failed")
    assert (refused["error_code"], refused["error_kind"], refused["offset"]) == (TOO_LARGE, "poison", None)
    assert refused["error_message"].endswith("the topic allows 2000")
    # 99 records and one commit marker: no transaction was spent on finding out.
    assert mock_cluster.end(topic) == 99 + 1


def test_a_broker_that_knows_no_name_for_its_error_has_answered(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"t": KafkaError(KafkaError.UNKNOWN, "broken"), "u": KafkaError(KafkaError._TRANSPORT, "away")}
    monkeypatch.setattr(destinations, "_answers", lambda _, futures, *__: {topic: answers[topic] for topic in futures})
    settings = settings_for(mock_cluster.bootstrap)
    trouble = destinations._ask(["t"], settings)["t"]
    assert isinstance(trouble, Trouble)
    assert trouble.error.code == KafkaError.UNKNOWN
    with pytest.raises(SessionLostError):
        destinations._ask(["u"], settings)


@pytest.mark.parametrize("bad", [0, 42, 99])
def test_a_record_above_a_limit_that_nobody_may_read_is_found_by_splitting(mock_cluster: MockCluster, bad: int) -> None:
    topic, other = mock_cluster.create("t"), mock_cluster.create("other")
    mock_cluster.fail_produce(topic, *refusals(100, bad))
    rows = [{"topic": topic} for n in range(100)]

    results = send([*rows, {"topic": other}], settings_for(mock_cluster.bootstrap))

    assert outcomes(results) == {f"d{n}": "failed" if n == bad else "delivered" for n in range(101)}
    (refused,) = (row for row in results if row["outcome"] == "failed")
    assert (refused["error_code"], refused["error_kind"]) == (TOO_LARGE, "poison")
    delivered = sorted((row["offset"], row["delivery_id"]) for row in results if row["topic"] == topic and row["offset"] is not None)
    assert [delivery for _, delivery in delivered] == [f"d{n}" for n in range(100) if n != bad]


def test_when_the_splits_are_spent_the_rest_is_left_alone(mock_cluster: MockCluster) -> None:
    topic, other = mock_cluster.create("t"), mock_cluster.create("other")
    mock_cluster.fail_produce(topic, *[TOO_LARGE] * 50)

    results = send([{"topic": topic}] * 50 + [{"topic": other}], settings_for(mock_cluster.bootstrap, max_splits=3))

    assert outcomes(results) == {"d50": "delivered"}
    assert stops(results) == [(topic, TOO_LARGE, "poison")]


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 200), data=st.data())
def test_exactly_the_refused_are_charged_in_few_transactions(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=5))
    aborts = 0

    def attempt(_: object, batch: Any, __: int, settings: PublisherSettings, ___: object) -> Aborted | Sent:
        """Brokers that refuse every transaction with a bad record in it."""
        nonlocal aborts
        refused = {row["topic"] for row in plain(batch) if int(row["delivery_id"][1:]) in bad}
        if refused:
            aborts += 1
            reason = settings.trouble(TOO_LARGE, "refused")
            return Aborted(reason, dict.fromkeys(refused, reason))
        return Sent([NOW_MS] * batch.num_rows, [0] * batch.num_rows, [0] * batch.num_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "in_transaction", attempt)
        patch.setattr(
            publishing,
            "describe",
            lambda topics, _: {topic: Destination(topic, partitions=1, max_message_bytes=None) for topic in topics},
        )
        results = send([{"topic": f"t{n % 3}"} for n in range(rows)], settings_for("nowhere"))

    assert outcomes(results) == {f"d{n}": "failed" if n in bad else "delivered" for n in range(rows)}
    for topic in ("t0", "t1", "t2"):
        order = [int(row["delivery_id"][1:]) for row in results if row["topic"] == topic and row["outcome"] == "delivered"]
        assert order == sorted(order)
    assert aborts <= len(bad) * (2 + ceil(log2(max(rows, 2))))


def refusals(rows: int, bad: int) -> list[int]:
    """The errors of a broker that refuses each batch with row `bad` in it, when halves are tried from first to last."""
    errors = []
    waiting = [range(rows)]
    while waiting:
        batch = waiting.pop()
        errors.append(TOO_LARGE if bad in batch else 0)
        if bad in batch and len(batch) > 1:
            waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
    return errors
