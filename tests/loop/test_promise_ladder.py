"""A message that always fails is sent again after 1, 2, 4, 8 s, and dead-lettered at the fifth failure."""

from __future__ import annotations

import pytest

from tests.loop.harness import Redrive


def test_a_message_that_always_fails_climbs_the_ladder_and_dies(redrive: Redrive) -> None:
    redrive.domain("ladder")
    failed = redrive.fails("ladder.orders", b"k", b"v")
    for attempt in range(1, 5):
        redrive.report(redrive.retries("ladder", attempt)[-1])
    (dead,) = redrive.dead("ladder", 1)
    retries = redrive.read("ladder.orders-billing-retry")

    assert [retry.header("redrive-attempt") for retry in retries] == ["2", "3", "4", "5"]
    assert all(retry.timestamp >= int(retry.header("redrive-due") or 0) for retry in retries)
    attempts = redrive.sql("select * from attempts where original_topic = 'ladder.orders' order by attempt")
    assert [row["delay_ms"] for row in attempts] == [1000, 2000, 4000, 8000, None]
    assert [row["decision"] for row in attempts] == ["retry"] * 4 + ["dead_letter"]
    assert [(row["due_at"] - row["failed_at"]).total_seconds() >= row["delay_ms"] / 1000 for row in attempts[:4]] == [True] * 4

    message_id = f"billing:ladder.orders/0/{failed.offset}"
    assert {record.header("redrive-message-id") for record in [*retries, dead]} == {message_id}
    assert dead.header("dlq-attempts") == "5"
    assert dead.header("dlq-error-class") == "TimeoutError"
    assert dead.header("dlq-reason") == "no answer within 2 s"
    assert dead.header("dlq-original-topic") == "ladder.orders"
    assert dead.header("redrive-consumer-group") == "billing"
    (row,) = redrive.sql(f"select * from dead_letters where message_id = '{message_id}'")
    assert (row["topic"], row["partition"], row["offset"], row["attempts"], row["reason"]) == (
        "ladder.orders.dlq", dead.partition, dead.offset, 5, "exhausted",
    )  # fmt: skip


def test_a_bug_is_dead_at_once(redrive: Redrive) -> None:
    redrive.domain("bug")
    redrive.fails("bug.orders", b"k", b"v", error="KeyError")
    (dead,) = redrive.dead("bug", 1)
    assert dead.header("dlq-attempts") == "1"
    assert redrive.read("bug.orders-billing-retry") == []


@pytest.mark.slow
def test_without_a_group_the_retry_goes_to_the_original_topic(redrive: Redrive) -> None:
    redrive.domain("nogroup")
    redrive.fails("nogroup.orders", b"k", b"v", group="")
    records = redrive.until(
        lambda: (found := redrive.read("nogroup.orders")) and len(found) == 2 and found, "the retry in the original topic"
    )
    assert records
    redrive.report(records[1], group="")
    first, second = redrive.decided("nogroup", 2)
    assert [first["attempt"], second["attempt"]] == [1, 2]
    assert first["message_id"] == second["message_id"] == ":nogroup.orders/0/0"
