"""Sequences: what becomes of messages that their consumer did not try, as an earlier one of their sequence had failed."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dbt.harness import Home, decided, order, pairs, report
from tests.dbt.sequence_kit import again, delivered, follows, orders, processed, ready, said, sequence, state

pytestmark = pytest.mark.long


def test_followers_wait_uncharged_and_are_sent_in_their_order_when_the_message_before_them_is_processed(home: Home) -> None:
    topic = "sequence-key"
    failed, second, third, other = decided(
        home, report(topic, 1), follows(topic, 2), follows(topic, 3, value=b"third"), report(topic, 4, key=b"other")
    )
    assert said([failed, second, third, other]) == [
        *(("retry", "retriable", 1), ("follows", "follows", 0), ("follows", "follows", 0), ("retry", "retriable", 1))
    ]
    assert (third["kind"], third["topic"], third["first_failed_at"]) == (None, None, None)
    assert (third["key"], third["value"], pairs(third["headers"])) == (b"key", b"third", [("trace", b"\x00\xff")])
    assert {row["sequence"] for row in (failed, second, third)} == {"key"}
    assert other["sequence"] == "other"
    home.later(minutes=5)
    assert {second["delivery_id"], third["delivery_id"]}.isdisjoint(ready(home))
    assert state(home, third) == "following"
    (waiting,) = (row for row in home.read("followers") if row["message_id"] == third["message_id"])
    assert (waiting["failed_message"], waiting["next_order"]) == (failed["message_id"], None)
    # sent, but not processed yet
    delivered(home, failed, other)
    assert orders(home, topic) == []
    processed(home, failed, 1)
    sent = orders(home, topic)
    assert [row["original_offset"] for row in sent] == [2, 3]
    assert said(sent) == [("retry", "in_turn", 0)] * 2
    assert [row["message_id"] for row in sent] == [second["message_id"], third["message_id"]]
    assert sent[0]["sequence_place"] < sent[1]["sequence_place"]
    assert {row["topic"] for row in sent} == {failed["topic"]}
    # what is sent tells its consumer which failure was the last one
    rows = ready(home)
    epoch = f"{failed['report_topic']}/{failed['report_partition']}/{failed['report_offset']}"
    assert [(rows[row["delivery_id"]]["sequence_id"], rows[row["delivery_id"]]["sequence_epoch"]) for row in sent] == [("key", epoch)] * 2
    assert len({rows[row["delivery_id"]]["sequence"] for row in sent}) == 1
    delivered(home, *sent)
    assert orders(home, topic) == []
    processed(home, sent[1], 1)
    assert {state(home, row) for row in (failed, second, third)} == {"recovered"}


@pytest.mark.slow
def test_a_follower_that_fails_in_its_turn_holds_those_after_it_and_nothing_else_is_charged(home: Home) -> None:
    topic = "sequence-again"
    failed, *_ = decided(home, report(topic, 1), *(follows(topic, offset) for offset in (2, 3, 4)))
    delivered(home, failed)
    processed(home, failed, 0)
    second, third, fourth = orders(home, topic)
    delivered(home, second, third, fourth)
    # the first of them fails; its consumer tries none of the others, and a later one of the original topic neither
    failed, third, fourth, fifth = decided(
        home,
        again(second, 0, "TimeoutError"),
        again(third, 1, "PreviousMessageWasRecovered"),
        again(fourth, 2, "PreviousMessageWasRecovered"),
        follows(topic, 5),
    )
    assert said([failed, third, fourth, fifth]) == [("retry", "retriable", 1), *[("follows", "follows", 0)] * 3]
    assert sequence(home, topic) == ("waiting", 3, 0, 0)
    assert orders(home, topic) == []
    delivered(home, failed)
    processed(home, failed, 0)
    sent = orders(home, topic)
    assert [(row["original_offset"], row["attempt"]) for row in sent] == [(3, 0), (4, 0), (5, 0)]
    epoch = f"{failed['report_topic']}/{failed['report_partition']}/{failed['report_offset']}"
    assert {row["sequence_epoch"] for row in sent} == {epoch}
    assert sequence(home, topic) == ("sent", 0, 3, 0)
    delivered(home, *sent)
    processed(home, sent[-1], 2)
    assert sequence(home, topic) is None


def test_a_route_says_what_becomes_of_the_followers_of_a_dead_message(home: Home) -> None:
    topics = dies, _, releases = "sequence-key-dies", "sequence-hold-dies", "sequence-release-dies"
    reports = [(report(topic, 1, error="KeyError"), follows(topic, 2), follows(topic, 3)) for topic in topics]
    failed, second, *_ = decided(home, *(one for of_topic in reports for one in of_topic))
    assert said([failed, second]) == [("dead_letter", "fatal", 1), ("follows", "follows", 0)]
    made = orders(home, *topics)
    assert [(row["original_topic"], row["decision"], row["reason"], row["topic"]) for row in made] == [
        *[(dies, "dead_letter", "follows_a_dead_message", f"{dies}.dlq")] * 2,
        *[(releases, "retry", "in_turn", f"{releases}.in-order")] * 2,
    ]
    assert [bytes(row["value"]) for row in made] == [b"value"] * len(made)
    # those still to come as well
    (fourth,) = decided(home, follows(dies, 4))
    assert fourth["decision"] == "follows"
    assert said(orders(home, dies)) == [("dead_letter", "follows_a_dead_message", 0)]
    assert [sequence(home, topic) for topic in topics] == [("dead", 0, 0, 3), ("dead", 2, 0, 0), ("dead", 0, 2, 0)]


@pytest.mark.slow
def test_what_follows_a_dead_message_goes_on_when_that_is_discarded_or_processed_after_all(home: Home) -> None:
    discarded, redriven = "sequence-hold-discarded", "sequence-hold-redriven"
    failed, _, other, _ = decided(
        home,
        *(report(discarded, 1, error="KeyError"), follows(discarded, 2)),
        *(report(redriven, 1, error="KeyError"), follows(redriven, 2)),
    )
    decided(home, order("discard", failed))
    assert said(orders(home, discarded)) == [("retry", "in_turn", 0)]
    (retry,) = decided(home, order("redrive", other))
    delivered(home, retry)
    assert sequence(home, redriven) == ("waiting", 1, 0, 0)
    assert orders(home, redriven) == []
    processed(home, retry, 0)
    assert said(orders(home, redriven)) == [("retry", "in_turn", 0)]


def test_a_message_waits_for_earlier_ones_of_its_sequence_only(home: Home) -> None:
    topic = "sequence-earlier"
    decided(
        home,
        report(topic, 5),
        # before it; of another sequence; of no sequence; in another partition, which has an order of its own; of another group
        follows(topic, 4),
        follows(topic, 6, key=b"other"),
        follows(topic, 7, key=None),
        follows(topic, 8, partition=1),
        follows(topic, 9, group="audit"),
        follows(topic, 10),
    )
    sent = orders(home, topic)
    assert [row["original_offset"] for row in sent] == [4, 6, 7, 9, 8]
    waiting = [row for row in home.read("followers") if row["original_topic"] == topic and row["state"] == "following"]
    assert [row["original_offset"] for row in waiting] == [10]


_IDS: list[tuple[str, dict[str, Any], str | None]] = [
    ("sequence-key-id", {"key": "Ä1".encode()}, "Ä1"),
    ("sequence-key-id", {"key": b"\xff\x01"}, "FF01"),
    ("sequence-key-id", {"key": b""}, None),
    ("sequence-key-id", {"key": None}, None),
    ("sequence-key-id", {"key": b"x" * 300}, f"{'x' * 243}~{hashlib.sha256(b'x' * 300).hexdigest()[:12]}"),
    ("sequence-header", {}, "h1"),
    ("sequence-path", {"value": b'{"order": {"id": 17}}'}, "17"),
    ("sequence-path", {"value": b'{"order": {"text": "a\tb", "id": 17}}'}, "17"),
    ("sequence-path", {"value": b"no json"}, None),
    ("sequence-steps", {"value": b'{"lines": [{}, {"id": "b"}]}'}, "b"),
    ("sequence-steps", {"value": b'{"lines": ["a"]}'}, None),
    # its privacy keeps no payload
    ("sequence-hidden", {"key": b"customer 17"}, hashlib.sha256(b"customer 17").hexdigest()),
    ("orders", {"key": b"of no sequence"}, None),
]


def test_a_sequence_is_named_by_key_header_or_path(home: Home) -> None:
    reports = [report(topic, offset, **how).with_headers(("sequence", b"h1")) for offset, (topic, how, _) in enumerate(_IDS)]
    assert [row["sequence"] for row in decided(home, *reports)] == [expected for _, _, expected in _IDS]


def test_failures_of_all_kinds_are_of_one_sequence_where_the_route_of_one_of_them_hides_its_id(home: Home) -> None:
    topic = "sequence-mixed"
    key = b"customer 17"
    failed, dead, follower = decided(
        home, report(topic, 1, key=key), report(topic, 2, key=key, error="KeyError"), follows(topic, 3, key=key)
    )
    assert (failed["decision"], dead["decision"], follower["decision"]) == ("retry", "dead_letter", "follows")
    assert {row["sequence"] for row in (failed, dead, follower)} == {hashlib.sha256(key).hexdigest()}


@pytest.mark.slow
def test_an_operator_can_t_send_a_follower_now_or_cancel_it(home: Home) -> None:
    topic = "sequence-orders"
    _, follower = decided(home, report(topic, 1), follows(topic, 2))
    for kind in ("send_now", "cancel", "redrive"):
        (row,) = decided(home, order(kind, follower))
        assert (row["decision"], row["reason"]) == ("refused", "wrong_kind_of_delivery")
    assert sequence(home, topic) == ("waiting", 1, 0, 0)


@pytest.mark.slow
def test_an_order_that_the_rules_refuse_is_given_again_under_other_rules_only(home: Home, seeds: Path) -> None:
    topic = "sequence-refused"
    (follower,) = decided(home, follows(topic, 2))
    routes = seeds / "routes.csv"
    routes.write_text(routes.read_text().replace("{topic}.in-order", "__internal"))
    home.load_rules()
    assert [row["decision"] for row in orders(home, topic)] == ["refused"]
    assert orders(home, topic) == []
    assert state(home, follower) == "following"
    routes.write_text(routes.read_text().replace("__internal", "{topic}.in-order"))
    home.load_rules()
    assert said(orders(home, topic)) == [("retry", "in_turn", 0)]


@pytest.mark.slow
def test_a_follower_is_tried_first_when_it_was_sent_and_then_reported_as_failed(home: Home) -> None:
    """Its time for retries counts from its own first failure, not from that of the message before it."""
    topic = "sequence-elapsed"
    _, follower = decided(home, report(topic, 1), follows(topic, 2))
    home.later(hours=3)
    (failed,) = decided(home, report(topic, 2, failed_at=home.now))
    assert (failed["decision"], failed["attempt"], failed["message_id"]) == ("retry", 1, follower["message_id"])
    assert failed["first_failed_at"] >= home.now - timedelta(minutes=1)


@pytest.mark.slow
def test_a_dead_message_that_was_discarded_redriven_and_dies_again_holds_its_sequence_again(home: Home) -> None:
    topic = "sequence-hold-again"
    (failed,) = decided(home, report(topic, 1, error="KeyError"))
    decided(home, order("discard", failed))
    assert orders(home, topic) == []
    assert sequence(home, topic) is None
    (retry,) = decided(home, order("redrive", failed))
    delivered(home, retry)
    decided(home, again(retry, 0, "KeyError"), follows(topic, 2))
    assert orders(home, topic) == []
    assert sequence(home, topic) == ("dead", 1, 0, 0)
