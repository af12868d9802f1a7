"""A failure that is reported again, at once, after its decision, after its retry was sent, or after its message died, is counted once."""

from __future__ import annotations

import time

import pytest

from tests.loop.harness import Redrive


def test_a_failure_reported_again_is_a_duplicate(redrive: Redrive) -> None:
    redrive.domain("twice")
    failed_at = int(time.time() * 1000)
    first = redrive.fails("twice.orders", b"k", b"v", failed_at=failed_at)
    redrive.report(first, failed_at=failed_at)
    redrive.decided("twice", 2)
    redrive.report(first, failed_at=failed_at)
    (retry,) = redrive.retries("twice", 1)
    # a copy of the first report that was long on its way: the retry has been sent since
    redrive.report(first, failed_at=failed_at)
    redrive.report(retry, error="KeyError")
    redrive.report(retry, error="KeyError")
    redrive.dead("twice", 1)
    # the message is dead, and both reports come once more
    redrive.report(first, failed_at=failed_at)
    redrive.report(retry, error="KeyError")
    decisions = redrive.decided("twice", 8)
    assert [row["decision"] for row in decisions] == [
        "retry", "duplicate", "duplicate", "duplicate", "dead_letter", "duplicate", "duplicate", "duplicate",
    ]  # fmt: skip
    redrive.settle()
    assert len(redrive.read("twice.orders-billing-retry")) == 1
    assert len(redrive.read("twice.orders.dlq")) == 1


@pytest.mark.slow
def test_a_dead_message_that_fails_anew_begins_another_life_cycle(redrive: Redrive) -> None:
    redrive.domain("anew")
    first = redrive.fails("anew.orders", b"k", b"v", error="KeyError")
    redrive.dead("anew", 1)
    redrive.report(first, failed_at=int(time.time() * 1000) + 1000)
    _, second = redrive.decided("anew", 2)
    assert (second["decision"], second["attempt"], second["life_cycle"]) == ("retry", 1, 2)
