"""What is decided about rows of outboxes and their failed sends, as the relay's page on reliability says, and what is written back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import Row

from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.row_states import RowStates
from tests.dbt.harness import Home, Result, decided, failed_again, order, pointer
from tests.dbt.outbox_rows import append_rows

pytestmark = pytest.mark.long


def published(home: Home, row_id: str, topic: str = "outbox-orders", **row: Any) -> Row:
    """The decision about a row that is pending."""
    home.later(seconds=1)
    (input_id,) = append_rows(home, {"row_id": row_id, "topic": topic, **row})
    home.decide()
    return home.decisions()[input_id]


def refused(home: Home, delivery: Row, kind: str, name: str = "AN_ERROR") -> Row:
    """The decision about a send that failed."""
    (row,) = decided(home, Result(delivery, "failed", error_name=name, error_kind=kind))
    return row


def states(home: Home, row_id: str, after: int) -> tuple[Any, ...]:
    """What is written back of a row after a batch."""
    found = [row for row in home.read("outbox_states") if row["row_id"] == row_id and row["batch"] > after]
    last = max(found, key=lambda row: (row["batch"], row["place"]))
    return last["status"], last["attempts"], last["next_retry_at"], last["last_error"]


def test_a_row_is_published_at_once_to_its_topic(home: Home) -> None:
    row = published(home, "first", key=b"k", headers=[{"key": "a", "value": b"\x00\xff"}], sequence="orders/outbox-orders/7")
    assert (row["decision"], row["reason"], row["kind"], row["topic"]) == ("publish", "new_row", "publish", "outbox-orders")
    assert (row["message_id"], row["life_cycle"], row["attempt"], row["due_at"]) == ("outbox:orders/first", 1, 0, home.now)
    assert (bytes(row["key"]), bytes(row["value"]), row["outbox_row"]) == (b"k", b"value", "first")
    assert (row["sequence"], row["sequence_place"]) == ("orders/outbox-orders/7", row["batch"] << 24)
    (ready,) = [one for one in home.read("ready") if one["delivery_id"] == row["delivery_id"]]
    # an original record names no other, and starts no attempt at processing
    assert (ready["publish_charge"], ready["original_topic"], ready["attempt"]) == ("all", None, None)


# the page's table: kind, whether the attempt counts, and the delay after the first failure, without jitter. What the publisher's table of
# errors doesn't have is retriable: test_publisher_error_kinds.py
KINDS = [
    ("retriable", 1, 1_000),
    ("fenced", 1, 1_000),
    ("quota", 1, 5_000),
    ("backpressure", 0, 1_000),
]


@pytest.fixture(scope="module")
def failed(home: Home) -> dict[str, tuple[Row, Row]]:
    """By kind of error: the decision about a row, and that about the send of it that failed. All are decided together."""
    kinds = [*(kind for kind, _, _ in KINDS), "fatal", "poison"]
    home.later(seconds=1)
    input_ids = append_rows(home, *({"row_id": f"kind {kind}", "topic": "outbox-orders"} for kind in kinds))
    home.decide()
    first = [home.decisions()[input_id] for input_id in input_ids]
    results = (Result(row, "failed", error_name="AN_ERROR", error_kind=kind) for row, kind in zip(first, kinds, strict=True))
    return {kind: (row, again) for kind, row, again in zip(kinds, first, decided(home, *results), strict=True)}


@pytest.mark.parametrize(("kind", "attempts", "delay_ms"), KINDS)
def test_a_failed_send_is_charged_and_delayed_by_its_kind(
    home: Home, failed: dict[str, tuple[Row, Row]], kind: str, attempts: int, delay_ms: int
) -> None:
    first, again = failed[kind]
    assert (again["decision"], again["reason"], again["kind"], again["topic"]) == ("retry", kind, "publish", "outbox-orders")
    assert (again["attempt"], again["publish_attempt"]) == (attempts, 0)
    if kind == "backpressure":
        assert again["delay_ms"] == delay_ms
    else:
        assert 0.7 * delay_ms <= again["delay_ms"] <= 1.3 * delay_ms
    assert again["due_at"] == again["recorded_at"] + timedelta(milliseconds=again["delay_ms"])
    assert bytes(again["value"]) == b"value"
    # a circuit breaker waits for consumers, none of which has seen the row
    assert again["breaker_key"] is None
    assert states(home, f"kind {kind}", first["batch"]) == ("failed", attempts, again["due_at"], "AN_ERROR")


@pytest.mark.parametrize("kind", ["fatal", "poison"])
def test_what_cannot_be_helped_is_dead_at_once(home: Home, failed: dict[str, tuple[Row, Row]], kind: str) -> None:
    first, dead = failed[kind]
    assert (dead["decision"], dead["reason"], dead["kind"], dead["topic"]) == ("dead_letter", kind, "dead_letter", "outbox-orders.dlq")
    assert (dead["attempt"], dead["due_at"]) == (1, dead["recorded_at"])
    # dead in its table when Kafka has the dead letter, not before
    assert states(home, f"kind {kind}", first["batch"])[:2] == ("failed", 1)
    home.append_results(Result(dead, offset=3))
    assert states(home, f"kind {kind}", dead["batch"])[0] == "dead"


def test_the_fifth_failure_is_the_last(home: Home) -> None:
    row = published(home, "ladder", topic="twice-at-most-not")
    delays = []
    for _ in range(4):
        row = refused(home, row, "retriable")
        delays.append(row["delay_ms"])
    assert [row["attempt"], row["decision"]] == [4, "retry"]
    assert [0.7 <= delay / 1000 / factor <= 1.3 for delay, factor in zip(delays, (1, 2, 4, 8), strict=True)] == [True] * 4
    # room in the client's queue is missing: that uses up nothing, however often
    row = refused(home, row, "backpressure")
    assert [row["attempt"], row["decision"], row["delay_ms"]] == [4, "retry", 1_000]
    dead = refused(home, row, "retriable")
    assert (dead["decision"], dead["reason"], dead["attempt"]) == ("dead_letter", "exhausted", 5)


def test_what_was_tried_elsewhere_counts_and_waits(home: Home) -> None:
    due = home.now + timedelta(seconds=40)
    # a database's times have microseconds, a due time has none, or the delivery would not be recognised by its header
    row = published(home, "adopted", attempts=4, next_retry_at=due - timedelta(microseconds=999))
    assert (row["attempt"], row["due_at"]) == (4, due)
    assert refused(home, row, "retriable")["reason"] == "exhausted"


@pytest.mark.slow
def test_a_row_that_is_pending_again_begins_anew_unless_it_is_open(home: Home) -> None:
    first = published(home, "again")
    repeated = published(home, "again")
    assert (repeated["decision"], repeated["reason"], repeated["life_cycle"]) == ("duplicate", "known_already", 1)
    home.append_results(Result(first, offset=1))
    second = published(home, "again")
    assert (second["decision"], second["life_cycle"], second["message_id"]) == ("publish", 2, "outbox:orders/again")
    dead = refused(home, second, "fatal")
    assert dead["life_cycle"] == 2
    third = published(home, "again")
    assert (third["decision"], third["life_cycle"]) == ("publish", 3)


def test_the_same_row_twice_in_one_step_is_published_once(home: Home) -> None:
    home.later(seconds=1)
    ids = append_rows(home, {"row_id": "twice", "topic": "outbox-orders"}, {"row_id": "twice", "topic": "outbox-orders"})
    ids += append_rows(home, {"row_id": "twice", "topic": "outbox-orders"})
    home.decide()
    assert [home.decisions()[one]["decision"] for one in ids] == ["publish", "duplicate", "duplicate"]


@pytest.mark.slow
def test_a_row_that_is_pending_beside_an_order_about_it_is_decided_after_the_order(home: Home) -> None:
    dead = refused(home, published(home, "ordered"), "fatal")
    home.append_results(Result(dead, offset=1))
    (ordered,) = home.append_reports(order("redrive", dead))
    home.later(seconds=1)
    (pending,) = append_rows(home, {"row_id": "ordered", "topic": "outbox-orders"})
    home.decide()
    found = home.decisions()
    assert [(found[name]["decision"], found[name]["life_cycle"]) for name in (ordered, pending)] == [("redrive", 2), ("duplicate", 2)]


@pytest.mark.slow
def test_a_row_from_long_ago_or_without_a_time_is_known(home: Home) -> None:
    published(home, "old", created_at=home.now - timedelta(days=400))
    published(home, "timeless", created_at=None)
    home.later(hours=30)
    assert published(home, "old", created_at=home.now - timedelta(days=400))["decision"] == "duplicate"
    assert published(home, "timeless", created_at=None)["decision"] == "duplicate"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("not legal", "destination_not_legal"),
        (None, "no_route"),
        ("failures-topic", "destination_is_a_source"),
        ("_x", "destination_is_internal"),
    ],
)
def test_a_topic_that_nothing_may_be_sent_to_is_refused_and_said_in_the_table(home: Home, topic: str | None, reason: str) -> None:
    row = published(home, f"topic {topic}", topic=topic)  # type: ignore[arg-type]  # a column may be null
    assert (row["decision"], row["reason"], row["kind"]) == ("refused", reason, None)
    assert states(home, f"topic {topic}", row["batch"] - 1) == ("dead", None, None, reason)


def test_ids_are_data(home: Home) -> None:
    strange = "it's; -- /*:upto:*/ \\ # ü / 7"
    first = published(home, strange)
    assert first["message_id"] == f"outbox:orders/{strange}"
    assert published(home, strange)["decision"] == "duplicate"
    assert refused(home, first, "retriable")["outbox_row"] == strange
    assert states(home, strange, first["batch"])[0] == "failed"


@pytest.mark.slow
def test_a_consumer_that_fails_on_a_published_record_begins_a_message_of_its_own(home: Home) -> None:
    row = published(home, "consumed")
    home.append_results(Result(row, offset=77))
    (failed,) = decided(home, failed_again({**row.asDict(), "consumer_group": "billing"}, 77).with_headers(*pointer(row)))  # type: ignore[arg-type]
    assert (failed["message_id"], failed["life_cycle"], failed["attempt"]) == ("billing:outbox-orders/0/77", 1, 1)
    assert (failed["decision"], failed["topic"]) == ("retry", "outbox-orders-billing-retry")


def test_a_dead_row_that_is_redriven_goes_to_its_topic_again(home: Home) -> None:
    dead = refused(home, published(home, "redriven"), "fatal")
    home.append_results(Result(dead, offset=1))
    (again,) = decided(home, order("redrive", dead))
    assert (again["decision"], again["kind"], again["topic"], again["life_cycle"], again["attempt"]) == (
        "redrive", "publish", "outbox-orders", 2, 0,
    )  # fmt: skip
    assert (bytes(again["value"]), again["outbox_row"]) == (b"value", "redriven")
    assert states(home, "redriven", dead["batch"])[0] == "processing"
    assert refused(home, again, "retriable")["attempt"] == 1


@pytest.mark.slow
def test_a_dead_letter_that_kafka_takes_late_says_nothing_about_a_row_that_was_redriven(home: Home) -> None:
    """Results are written back in one step with what was decided before, or in a later one."""
    row_states = RowStates(home.spark, home.schema)

    def written_back(row_id: str, since: int) -> str | None:
        found = row_states.since("orders", OutboxPosition(since, since), home.batch, home.batch, [])
        return next((state.status for state in found if state.row_id == row_id), None)

    began = home.batch
    dead = refused(home, published(home, "late"), "poison")
    assert written_back("late", began) == "failed"
    decided_upto = home.batch
    home.append_results(Result(dead, offset=1))
    assert (written_back("late", began), written_back("late", decided_upto)) == ("dead", "dead")

    began = home.batch
    dead = refused(home, published(home, "later"), "poison")
    (name,) = home.append_reports(order("redrive", dead))
    home.decide()
    redriven_at = home.batch - 1
    home.append_results(Result(dead, offset=2))
    assert (written_back("later", began), written_back("later", redriven_at)) == ("processing", "processing")
    home.append_results(Result(home.decisions()[name], offset=3))
    home.append_results(Result(dead, offset=4))
    assert (written_back("later", began), written_back("later", redriven_at)) == ("done", "done")


@pytest.mark.slow
def test_a_dbt_run_by_hand_decides_rows_too(home: Home) -> None:
    home.later(seconds=1)
    (one, two) = append_rows(home, {"row_id": "by hand", "topic": "outbox-orders"}, {"row_id": "by hand 2", "topic": "outbox-orders"})
    home.decide(watermark=None)
    assert [home.decisions()[name]["decision"] for name in (one, two)] == ["publish", "publish"]


def test_a_dead_row_that_is_sent_as_it_is_read_is_dead_no_more(home: Home) -> None:
    dead = refused(home, published(home, "sent after all"), "poison")
    home.append_results(Result(dead, offset=3))

    def found() -> tuple[str, str]:
        of = {
            table: next(row for row in home.read(table) if row["message_id"] == dead["message_id"])
            for table in ("messages", "dead_letters")
        }
        return of["messages"]["state"], of["dead_letters"]["state"]

    assert (dead["kind"], found()) == ("dead_letter", ("dead", "open"))
    # what a direct send records: the result of a delivery that no decision made
    sent = {
        "message_id": dead["message_id"],
        "delivery_id": f"{dead['message_id']}#direct",
        "due_at": home.now,
        "kind": "publish",
        "topic": "outbox-orders",
    }
    home.append_results(Result(Row(**{**dead.asDict(), **sent}), offset=8))
    assert found() == ("sent", "redriven")


def test_a_failed_send_that_no_rule_has_a_place_for_is_open_no_more(home: Home) -> None:
    # its dead letter would come back as a report
    row = published(home, "refused", topic="into-a-source-dead", sequence="orders/into-a-source-dead/1")
    assert refused(home, row, "poison")["decision"] == "refused"
    assert row["delivery_id"] not in {one["delivery_id"] for one in home.read("bulk_open")}
    again = published(home, "refused", topic="into-a-source-dead", sequence="orders/into-a-source-dead/1")
    assert (again["decision"], again["life_cycle"]) == ("publish", 2)
