"""Brokers without transactions: each row's outcome is its own report, and what got none may be written all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from publisher import PublisherSettings, SessionLostError, SupersededError, generation, publishing, sending, take_charge
from publisher.contract import SUPERSEDED_CODE
from publisher.destinations import Destination
from publisher.errors import Trouble
from publisher.generation import refuse_superseded
from publisher.handover import Reports, hand_over
from publisher.session import Session
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster
from tests.unit.publisher_kit.rows import NOW, NOW_MS, outcomes, ready, send, settings_for, stops
from tests.unit.publisher_kit.tables import ERROR_KINDS
from tests.unit.test_publisher_isolation import TOO_LARGE, refusals

A, B = "a", "b"


def plainly(cluster: MockCluster, **changes: Any) -> PublisherSettings:
    return settings_for(cluster.bootstrap, transactions=False, **changes)


@dataclass(frozen=True)
class Case:
    """Two rows for topic `a` (d0, d2) and two for topic `b` (d1, d3), and what becomes of them under a script."""

    what: str
    script: Callable[[MockCluster], None]
    a: str | None
    stops: list[tuple[str | None, int, str]] = field(default_factory=list)
    code: int | None = None
    """The error code of the rows for `a`."""


CASES = [
    Case("nothing goes wrong", lambda cluster: None, "delivered"),
    Case("errors that pass are waited for", lambda cluster: cluster.fail_produce(A, 6, 19, 7), "delivered"),
    Case("a refusal by ACL is charged", lambda cluster: cluster.fail_produce(A, 29), "failed", code=29),
    Case(
        "a topic that refuses to be described is charged",
        lambda cluster: cluster.break_topic(A, 29),
        "failed",
        code=29,
    ),
    Case(
        "an error of the connection by which the broker says that it wrote nothing is no result",
        lambda cluster: cluster.fail_produce(A, 31),
        None,
        [(A, 31, "fatal")],
    ),
    Case(
        "an unlisted error says nothing about what was written",
        lambda cluster: cluster.fail_produce(A, 999),
        "unknown",
        [(A, 999, "retriable")],
        code=999,
    ),
    Case(
        "a topic without a leader is paused",
        lambda cluster: cluster.break_topic(A, 5),
        None,
        [(A, 5, "retriable")],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_outcome(mock_cluster: MockCluster, case: Case) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    case.script(mock_cluster)

    results = send([{"topic": A}, {"topic": B}] * 2, plainly(mock_cluster))

    wanted = {"d0": case.a, "d1": "delivered", "d2": case.a, "d3": "delivered"}
    assert outcomes(results) == {delivery: outcome for delivery, outcome in wanted.items() if outcome}
    assert stops(results) == case.stops
    for row in results:
        if row["outcome"] != "stopped":
            assert row["error_code"] == (case.code if row["topic"] == A else None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_where_all_failed_sends_count_whatever_was_not_sent_has_failed(mock_cluster: MockCluster, case: Case) -> None:
    mock_cluster.create(A)
    mock_cluster.create(B)
    case.script(mock_cluster)

    results = send([{"topic": A, "publish_charge": "all"}, {"topic": B, "publish_charge": "all"}] * 2, plainly(mock_cluster))

    assert outcomes(results) == {"d0": case.a or "failed", "d1": "delivered", "d2": case.a or "failed", "d3": "delivered"}
    assert stops(results) == case.stops


def test_records_lie_where_the_results_say_and_nothing_beside_them(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    headers: list[list[tuple[str, bytes | None]] | None] = [None, [("a", b""), ("b", None), ("a", b"2")]]
    rows = [{"topic": topic, "headers": headers[n % 2], "value": (b"v", None, b"")[n % 3]} for n in range(50)]

    results = send(rows, plainly(mock_cluster, max_rows=20))

    assert [(row["delivery_id"], row["offset"], row["outcome"]) for row in results] == [(f"d{n}", n, "delivered") for n in range(50)]
    assert mock_cluster.end(topic) == 50
    for number, message in enumerate(mock_cluster.read(topic, 50)):
        assert message.key() == f"k{number}".encode()
        assert message.value() == (b"v", None, b"")[number % 3]
        assert (message.headers() or None) == headers[number % 2]


@pytest.mark.parametrize("bad", [0, 42, 99])
def test_one_bad_record_in_a_batch_is_charged_alone(mock_cluster: MockCluster, bad: int) -> None:
    topic, other = mock_cluster.create("t"), mock_cluster.create("other")
    mock_cluster.fail_produce(topic, *refusals(100, bad))

    results = send([{"topic": topic}] * 100 + [{"topic": other}], plainly(mock_cluster))

    assert outcomes(results) == {f"d{n}": "failed" if n == bad else "delivered" for n in range(101)}
    (refused,) = (row for row in results if row["outcome"] == "failed")
    assert (refused["error_code"], refused["error_kind"]) == (TOO_LARGE, "poison")
    delivered = sorted((row["offset"], row["delivery_id"]) for row in results if row["topic"] == topic and row["offset"] is not None)
    assert [delivery for _, delivery in delivered] == [f"d{n}" for n in range(100) if n != bad]


def test_a_row_without_a_report_in_time_may_be_written(mock_cluster: MockCluster) -> None:
    topic, other = mock_cluster.create("t"), mock_cluster.create("other")
    mock_cluster.delay(Api.PRODUCE, 30_000)

    results = send([{"topic": topic}] * 3, plainly(mock_cluster, transaction_timeout_ms=4_000))

    assert outcomes(results) == dict.fromkeys(["d0", "d1", "d2"], "unknown")
    for row in results[:3]:
        assert (row["sent_at"], row["not_before"], row["offset"]) == (NOW, NOW + timedelta(seconds=4), None)
        assert (row["error_code"], row["error_kind"]) == (KafkaError._MSG_TIMED_OUT, "retriable")
    assert stops(results) == [(topic, KafkaError._MSG_TIMED_OUT, "retriable")]
    assert mock_cluster.end(topic) == 3
    assert outcomes(send([{"topic": other}], plainly(mock_cluster))) == {"d0": "delivered"}


def test_nothing_is_handed_over_while_nobody_is_there(mock_cluster: MockCluster) -> None:
    topic = mock_cluster.create("t")
    settings = plainly(mock_cluster, metadata_timeout_ms=700)
    send([{"topic": topic}], settings)

    with mock_cluster.down():
        results = send([{"topic": topic}] * 2, settings)

    assert outcomes(results) == {}
    ((where, _, kind),) = stops(results)
    assert (where, kind) == (None, "retriable")


def test_rows_for_brokers_that_go_while_they_are_sent_are_unknown(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mock_cluster.create("t")
    with ExitStack() as stack:

        def gone(*arguments: Any) -> None:
            stack.enter_context(mock_cluster.down())
            hand_over(*arguments)

        monkeypatch.setattr(sending, "hand_over", gone)
        results = send([{"topic": topic}] * 2, plainly(mock_cluster))

    assert outcomes(results) == {"d0": "unknown", "d1": "unknown"}
    assert stops(results) == [(topic, KafkaError._MSG_TIMED_OUT, "retriable")]


@dataclass(frozen=True)
class Reported:
    """What reports say of ten rows, and what follows; rows without a report are late."""

    what: str
    errors: dict[int, int]
    refused: set[int] = field(default_factory=set)
    innocent: set[int] = field(default_factory=set)
    unanswered: set[int] = field(default_factory=set)


REPORTED = [
    Reported("all delivered", {}),
    # Brokers that name the bad records of a batch: these, not the others, have the error.
    Reported("named, in a batch of its own", {2: 87}, {2}),
    Reported("named, and the rest of the batch", {1: KafkaError._INVALID_DIFFERENT_RECORD, 2: 87}, {2}, {1}),
    Reported("a batch that is too large", {1: 10, 2: 10, 3: 18}, {1, 2, 3}),
    Reported("not enough replicas before and after", {1: 19, 2: 20}, {1}, set(), {2}),
    Reported("a broker that took too long", {5: 7, 6: 13}, set(), set(), {5, 6}),
    Reported("thrown away", {7: KafkaError._PURGE_QUEUE, 8: KafkaError._PURGE_INFLIGHT}, set(), set(), {7, 8}),
    Reported("an unknown server error", {0: -1, 9: 120}, set(), set(), {0, 9}),
]


@pytest.mark.parametrize("case", REPORTED, ids=lambda case: case.what)
def test_reports_are_sorted_out(case: Reported) -> None:
    reports = Reports(10, ERROR_KINDS)
    reports.sent_at = [NOW_MS] * 10
    for row in range(10):
        if case.errors.get(row):
            reports.by_row[row] = KafkaError(case.errors[row])
        else:
            reports.partitions[row] = reports.offsets[row] = row

    load = sending._sorted_out(reports, settings_for("b:9092"), None)

    assert (set(load.refused), set(load.innocent), set(load.unanswered)) == (case.refused, case.innocent, case.unanswered)
    assert load.lost is None
    # Rows that were thrown away were waited for in vain: that is the reason.
    given_up = [load.unanswered[row].error.code for row, code in case.errors.items() if code in (-151, -152)]
    assert given_up == [KafkaError._MSG_TIMED_OUT] * len(given_up)


def test_a_row_that_the_client_does_not_take_is_refused_and_the_ones_without_a_report_are_not() -> None:
    reports = Reports(10, ERROR_KINDS)
    reports.partitions[:3] = [0, 0, 0]
    reports.sent_at, reports.refusal = [NOW_MS] * 5, ("t", KafkaError(10))

    load = sending._sorted_out(reports, settings_for("b:9092"), None)

    assert (set(load.refused), set(load.unanswered)) == ({5}, {3, 4})


def test_what_follows_a_row_that_the_client_does_not_take_is_sent(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mock_cluster.create("t")
    # Nobody knows beforehand that the record is too large, but the client does when it is handed over.
    monkeypatch.setattr("publisher.fitting.largest_message", lambda _: 10**9)
    rows = [{"topic": topic, "value": b"x" * (3_000 if n == 4 else 10)} for n in range(10)]

    results = send(rows, plainly(mock_cluster, kafka={"message.max.bytes": "2000"}))

    assert outcomes(results) == {f"d{n}": "failed" if n == 4 else "delivered" for n in range(10)}
    assert [message.key() for message in mock_cluster.read(topic, 9)] == [f"k{n}".encode() for n in range(10) if n != 4]


@pytest.mark.parametrize(("code", "anew"), [(0, False), (TOO_LARGE, True), (999, True)])
def test_after_a_load_that_went_wrong_the_next_gets_a_new_producer(mock_cluster: MockCluster, code: int, anew: bool) -> None:
    topic = mock_cluster.create("t")
    mock_cluster.fail_produce(topic, code)
    settings = plainly(mock_cluster)

    with Session(settings, 0, refuse_superseded) as session:
        before = session.producer(1_000, topic)
        sending.without_transaction(session, ready([{"topic": topic}]), 1_000, settings, lambda: NOW_MS)
        assert (session.producer(1_000, topic) is not before) is anew


def test_the_generation_is_read_before_each_load(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mock_cluster.create("t")
    numbers = iter([(7, 0), (7, 0), (8, 0)])
    monkeypatch.setattr(generation, "_highest", lambda _: next(numbers))

    results = send([{"topic": topic}] * 50, plainly(mock_cluster, max_rows=10, generation=7, fence_topics=(topic,)))

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(20)}
    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]


def test_charge_is_taken_without_a_transaction(mock_cluster: MockCluster) -> None:
    source = mock_cluster.create("source")
    assert take_charge(plainly(mock_cluster, generation=7), [source], slots=2) is True
    assert take_charge(plainly(mock_cluster, generation=8), [source], slots=2) is True

    with pytest.raises(SupersededError, match="generation 8 has taken over from generation 7"):
        take_charge(plainly(mock_cluster, generation=7), [source], slots=2)
    results = send([{"topic": source}], plainly(mock_cluster, generation=7, fence_topics=(source,)))
    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]
    assert take_charge(plainly(mock_cluster, generation=9), ["missing"], slots=2) is False


@pytest.mark.parametrize("code", [30, 29])
def test_trouble_while_taking_charge_is_told(mock_cluster: MockCluster, code: int) -> None:
    source = mock_cluster.create("source")
    mock_cluster.fail(Api.OFFSET_COMMIT, code)

    with pytest.raises(SessionLostError) as raised:
        take_charge(plainly(mock_cluster, generation=7), [source], slots=2)

    assert raised.value.trouble.error.code == code


@hypothesis_settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 120), batch=st.integers(1, 40), named=st.booleans(), data=st.data())
def test_every_row_has_the_outcome_that_its_batch_deserves(rows: int, batch: int, named: bool, data: st.DataObject) -> None:
    """Brokers that refuse a batch for each bad record in it, and say which one, or don't."""
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=4))
    written: list[str] = []

    def attempt(_: object, load: Any, __: int, settings: PublisherSettings, ___: object) -> sending.Sent:
        ids, topics = load.column("delivery_id").to_pylist(), load.column("topic").to_pylist()
        refused: dict[int, Trouble] = {}
        innocent: set[int] = set()
        by_topic = [[place for place, topic in enumerate(topics) if topic == wanted] for wanted in dict.fromkeys(topics)]
        for places in (some[start : start + batch] for some in by_topic for start in range(0, len(some), batch)):
            wrong = {place for place in places if int(ids[place][1:]) in bad}
            if wrong:
                refused.update(dict.fromkeys(wrong if named else places, settings.trouble(TOO_LARGE, "refused")))
                innocent |= set(places) - wrong if named else set()
            else:
                written.extend(ids[place] for place in places)
        count = len(ids)
        return sending.Sent([NOW_MS] * count, [0] * count, [0] * count, refused, frozenset(innocent))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "without_transaction", attempt)
        patch.setattr(publishing, "describe", lambda topics, _: {topic: Destination(topic, 1, None) for topic in topics})
        results = send([{"topic": f"t{n % 3}"} for n in range(rows)], settings_for("nowhere", transactions=False))

    assert outcomes(results) == {f"d{n}": "failed" if n in bad else "delivered" for n in range(rows)}
    assert sorted(written) == sorted(f"d{n}" for n in range(rows) if n not in bad)
