"""Sequences: what operators do about them."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from orchestration.loop.command_orders import Orders
from orchestration.operators.dead_letters import DeadLetters
from orchestration.operators.lists import Target, not_taken_along, select_deliveries
from orchestration.operators.selections import Selection
from orchestration.operators.sequences import SequenceSelection, left_out, listed, members, to_release, to_skip
from orchestration.tables.rows import collected
from tests.dbt.harness import Home, decided, order, report
from tests.dbt.sequence_kit import again, delivered, follows, orders, processed, said, sequence

pytestmark = pytest.mark.long


def of(home: Home, target: Target) -> Row:
    """The delivery that a target of a command is about."""
    (found,) = (row for row in home.read("deliveries") if row["delivery_id"] == target.delivery_id)
    return found


@pytest.mark.slow
def test_a_redrive_takes_along_what_is_dead_only_because_of_the_message(home: Home) -> None:
    topic = "sequence-along"
    failed, *_ = decided(
        home, report(topic, 1, error="KeyError"), follows(topic, 2), follows(topic, 3), report(topic, 4, error="KeyError", key=b"other")
    )
    delivered(home, failed, *orders(home, topic))
    dead = DeadLetters(home._settings)
    chosen = Selection(ids=(failed["message_id"],), state="open")
    alone = select_deliveries(dead, "redrive", chosen)
    together = select_deliveries(dead, "redrive", chosen, with_followers=True)
    assert [one.message_id[-2:] for one in alone] == ["/1"]
    assert [one.message_id[-2:] for one in together] == ["/1", "/2", "/3"]
    assert (not_taken_along(dead, alone), not_taken_along(dead, together)) == (2, 0)
    again_first, *followers = decided(home, *(order("redrive", of(home, one)) for one in together))
    assert {row["decision"] for row in (again_first, *followers)} == {"redrive"}
    delivered(home, again_first, *followers)
    # the sequence is held as long as the first is not processed: the consumer tries none of the others
    put_off = decided(home, *(again(one, place, "PreviousMessageWasRecovered") for place, one in enumerate(followers, 1)))
    assert {row["decision"] for row in put_off} == {"follows"}
    assert orders(home, topic) == []
    processed(home, again_first, 0)
    assert [(row["reason"], row["original_offset"]) for row in orders(home, topic)] == [("in_turn", 2), ("in_turn", 3)]


def test_an_operator_goes_on_without_the_message_that_has_failed(home: Home) -> None:
    waiting, dies = "sequence-skip", "sequence-hold-skip"
    first, follower, fatal, *_ = decided(
        home, report(waiting, 1), follows(waiting, 2), report(dies, 1, error="KeyError"), follows(dies, 2), follows(dies, 3)
    )
    delivered(home, fatal)
    dead = DeadLetters(home._settings)
    both = SequenceSelection(topic="^sequence-(hold-)?skip$")
    assert {(row["state"], row["following"]) for row in dead.rows(listed(both))} == {("waiting", 1), ("dead", 2)}
    assert (
        dead.rows(listed(SequenceSelection((f"billing:{dies}/0/key",), dies, "billing", "dead")))[0]["failed_message"]
        == fatal["message_id"]
    )
    shown = dead.rows(members(f"billing:{dies}/0/key"))
    assert [(row["message_id"][-2:], row["state"]) for row in shown] == [
        ("/1", "dead"),
        ("/2", "following"),
        ("/3", "following"),
    ]
    assert dead.rows(members("billing:nowhere/0/key")) == []
    assert left_out(dead, SequenceSelection((f"billing:{dies}/0/key", "nowhere")), []) == [
        "nowhere is not held, or is left out by another option",
        f"billing:{dies}/0/key: dead, {fatal['message_id']} has failed, 2 messages wait",
    ]
    # released: what waits is sent, and names the failure that its consumer knows of; the failed message stays as it is
    released = to_release(dead, SequenceSelection(topic=dies))
    assert [one.message_id[-2:] for one in released] == ["/2", "/3"]
    chosen = [(of(home, one)["delivery_id"], of(home, one)["due_at"], place) for place, one in enumerate(released)]
    events = {row["index"]: row for row in collected(Orders(home.spark, home.schema).of("c", "in_turn", None, chosen, 7, home.now))}
    epoch = f"{fatal['report_topic']}/{fatal['report_partition']}/{fatal['report_offset']}"
    assert [(events[place]["kind"], events[place]["detail"]) for place in (0, 1)] == [("in_turn", epoch)] * 2
    sent = decided(home, *(order("in_turn", of(home, one), events[place]["detail"]) for place, one in enumerate(released)))
    assert said(sent) == [("retry", "in_turn", 0)] * 2
    assert sequence(home, dies) == ("dead", 0, 2, 0)
    skipped = to_skip(dead, SequenceSelection(topic=dies))
    assert {what: [one.message_id for one in ones] for what, ones in skipped.items()} == {"cancel": [], "discard": [fatal["message_id"]]}
    # skipped: it waits for its retry, and is cancelled
    skipped = to_skip(dead, SequenceSelection(topic=waiting))
    assert {what: [one.message_id for one in ones] for what, ones in skipped.items()} == {"cancel": [first["message_id"]], "discard": []}
    decided(home, order("cancel", first))
    assert [row["message_id"] for row in orders(home, waiting)] == [follower["message_id"]]
