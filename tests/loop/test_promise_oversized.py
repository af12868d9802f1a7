"""One record in a hundred is too large for its topic: it alone becomes a dead letter, the others are delivered."""

from __future__ import annotations

from tests.loop.harness import Redrive


def test_one_oversized_record_is_dead_lettered_and_ninety_nine_are_delivered(redrive: Redrive) -> None:
    redrive.topics("size.orders", "size.orders.dlq", "size.reports", "size.reports.dlq")
    redrive.topics("size.orders-billing-retry", config={"max.message.bytes": "20000"})
    for number in range(100):
        redrive.fails("size.orders", b"k%d" % number, b"x" * (30_000 if number == 57 else 100))
    retries = redrive.retries("size", 99)
    (dead,) = redrive.dead("size", 1)
    redrive.settle()
    assert {retry.key for retry in retries} == {b"k%d" % number for number in range(100) if number != 57}
    assert len(redrive.read("size.orders-billing-retry")) == 99
    assert dead.key == b"k57"
    assert dead.header("dlq-error-class") == "MSG_SIZE_TOO_LARGE"
    assert dead.header("dlq-attempts") == "1"
    (row,) = redrive.sql("select * from messages where message_id = 'billing:size.orders/0/57'")
    assert (row["state"], row["reason"], row["error_kind"]) == ("dead", "send_failed", "poison")
