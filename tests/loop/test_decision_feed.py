"""Decisions are announced on a topic, each at least once, in order, and without holding up anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from orchestration.loop.health import DECISION_FEED
from tests.loop.harness import Redrive

TOPIC = "announced.decisions"


def _announced(redrive: Redrive, count: int) -> list[dict[str, Any]]:
    records = redrive.until(lambda: (found := redrive.read(TOPIC)) and len(found) >= count and found, f"{count} announcements") or []
    said = [json.loads(record.value or b"") for record in records]
    assert [record.key for record in records] == [decision["message_id"].encode() for decision in said]
    return said


@pytest.mark.slow
def test_each_decision_is_written_to_the_feed_and_a_restart_goes_on_where_it_was(redrive: Redrive) -> None:
    redrive.domain("announced")
    redrive.fails("announced.orders", b"0", b"before it was switched on")
    redrive.settle()
    redrive.topics(TOPIC)
    redrive.restart(decisions_topic=TOPIC)
    try:
        first = redrive.fails("announced.orders", b"k", b"v")
        bug = redrive.fails("announced.orders", b"k2", b"v2", error="KeyError")
        redrive.report(first)
        said = _announced(redrive, 2)
        assert [(decision["original_offset"], decision["decision"], decision["will_retry"]) for decision in said] == [
            (first.offset, "retry", True),
            (bug.offset, "dead_letter", False),
        ]
        assert said[1]["rule"] == "error_rules: LookupError+"
        redrive.restart()
        (retry,) = [record for record in redrive.retries("announced", 2) if record.key == b"k"]
        redrive.report(retry, error="KeyError")
        assert _announced(redrive, 3)[2]["reason"] == "fatal"
        # a topic that is gone holds up nothing else, and gets what it missed
        admin = AdminClient({**redrive.kafka})
        admin.delete_topics([TOPIC])[TOPIC].result()
        redrive.fails("announced.orders", b"k3", b"v3", error="KeyError")
        redrive.dead("announced", 3)
        redrive.until(lambda: DECISION_FEED in redrive.loop.health, "it says so")
        redrive.topics(TOPIC)
        assert _announced(redrive, 1)[0]["will_retry"] is False
    finally:
        redrive.restart(decisions_topic="")
    redrive.settle()
