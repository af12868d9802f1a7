"""Destinations and brokers that do not work for a while: it waits, says so, charges nothing, loses nothing, stops no other."""

from __future__ import annotations

import json
import logging
import os
import signal
from threading import Timer
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType
from pyspark.sql import DataFrame

from orchestration.demo.broker import Broker
from orchestration.loop.health import KAFKA
from orchestration.loop.sending import BulkLane
from tests.log_events import logged
from tests.loop.harness import Redrive, deliveries

pytestmark = pytest.mark.long

GONE = {
    "error-class": b"TimeoutError",
    "original-topic": b"gone.orders",
    "original-partition": b"0",
    "original-offset": b"0",
    "consumer-group": b"billing",
}
"""What a report says of a record of a topic that isn't there."""


def test_a_destination_that_is_missing_is_paused_and_keeps_nothing_else_waiting(redrive: Redrive, caplog: pytest.LogCaptureFixture) -> None:
    redrive.domain("aside")
    missing = "aside.orders-ghost-retry"
    for number in range(3):
        redrive.fails("aside.orders", f"ghost-{number}".encode(), b"v", group="ghost")
        redrive.fails("aside.orders", f"well-{number}".encode(), b"v")
    redrive.retries("aside", 3)
    paused, *_ = [said for said in logged(caplog, "destination_paused") if said["topic"] == missing]
    assert paused["reason"]
    assert paused["retry_at"].endswith("Z")
    assert missing in redrive.loop.state.window.paused

    # the others' floor has moved over its messages, which wait behind a floor of their own
    redrive.until(lambda: not redrive.loop.tick().did_something, "nothing else to do")
    (first,) = redrive.sql(f"select min(due_at) as due_at from ready where topic = '{missing}'")
    assert first["due_at"].astimezone().timestamp() < redrive.loop.state.window.floor.timestamp()
    assert redrive.loop.state.window.paused[missing].floor.timestamp() <= first["due_at"].astimezone().timestamp()
    status = json.loads(redrive.loop.settings.status_file.read_text())
    assert f"destination {missing}" in status["trouble"]

    # a loop that takes over knows of it
    redrive.fails("aside.orders", b"well-3", b"v")
    redrive.retries("aside", 4)
    redrive.restart()
    assert missing in redrive.loop.state.window.paused
    assert first["due_at"].astimezone().timestamp() < redrive.loop.state.window.floor.timestamp()

    redrive.topics(missing)
    ghosts = redrive.until(lambda: (records := redrive.read(missing)) and len(records) == 3 and records, "three retries come late") or []
    assert {record.key for record in ghosts} == {b"ghost-0", b"ghost-1", b"ghost-2"}
    redrive.until(lambda: missing not in redrive.loop.state.window.paused, "it takes messages again")
    redrive.settle()
    assert set(deliveries([*redrive.read(missing), *redrive.read("aside.orders-billing-retry")]).values()) == {1}
    assert {row["publish_attempt"] for row in redrive.sql("select * from decisions where original_topic = 'aside.orders'")} == {0}


@pytest.mark.slow
def test_missing_topics_are_made_where_the_settings_say_so(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.topics("made.orders", "made.reports", partitions=3)
    allowed = redrive.loop.settings.model_copy(update={"create_topics": True})
    monkeypatch.setattr(redrive.loop, "settings", allowed)
    monkeypatch.setattr(redrive.loop.steps.publish.missing_topics.topic_maker, "settings", allowed)
    redrive.fails("made.orders", b"k", b"v")
    redrive.fails("made.orders", b"dead", b"v", error="KeyError")
    made = ("made.orders-billing-retry", "made.orders.dlq")
    redrive.until(
        lambda: redrive.loop.steps.publish.missing_topics.topic_maker.made == 2 and not redrive.loop.state.window.paused,
        "both topics are made and take messages",
    )
    assert [[record.key for record in redrive.read(topic)] for topic in made] == [[b"k"], [b"dead"]]
    assert {topic.partitions for topic in redrive.loop.cluster.describe(made).values()} == {3}
    assert redrive.loop.cluster.max_message_bytes(made) == dict.fromkeys(made, 4_000_000 + 65_536)
    # of a topic that is gone nothing is known: a report about it has nothing made
    redrive.write("made.reports", b"k", b"v", [(f"redrive-{name}", value) for name, value in GONE.items()])
    redrive.until(lambda: "gone.orders-billing-retry" in redrive.loop.state.window.paused, "its destination is missing")
    assert "the loop does not create it: none of the topics" in redrive.loop.state.window.paused["gone.orders-billing-retry"].why
    assert redrive.loop.steps.publish.missing_topics.topic_maker.made == 2


@pytest.mark.slow
def test_a_topic_that_may_not_be_written_to_costs_its_own_messages_and_no_others(redrive: Redrive) -> None:
    redrive.domain("denied")
    redrive.topics("denied.orders-locked-retry")
    admin = AdminClient({**redrive.kafka})
    rule = AclBinding(
        ResourceType.TOPIC, "denied.orders-locked-retry", ResourcePatternType.LITERAL,
        "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY,
    )  # fmt: skip
    for made in admin.create_acls([rule]).values():
        made.result()
    locked = redrive.fails("denied.orders", b"locked", b"v", group="locked")
    redrive.fails("denied.orders", b"open", b"v")
    assert [retry.key for retry in redrive.retries("denied", 1)] == [b"open"]
    (dead,) = redrive.dead("denied", 1)
    assert (dead.key, dead.value) == (locked.key, locked.value)
    assert dead.header("dlq-original-topic") == "denied.orders"
    assert redrive.read("denied.orders-locked-retry") == []
    (told,) = redrive.sql("select state from messages where original_topic = 'denied.orders' and consumer_group = 'locked'")
    assert told["state"] == "dead"


@pytest.mark.slow
def test_a_broker_that_is_gone_for_a_while_charges_nobody(redrive: Redrive, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    redrive.domain("gone")
    redrive.fails("gone.orders", b"k", b"v")
    redrive.retries("gone", 1)
    redrive.report(redrive.read("gone.orders-billing-retry")[0])
    redrive.until(
        lambda: len(redrive.sql("select 1 from decisions where report_topic = 'gone.reports'")) == 2, "the second failure is decided"
    )
    broker.stop()
    try:
        with caplog.at_level(logging.WARNING):
            redrive.until(lambda: redrive.loop.tick() and KAFKA in redrive.loop.health, "it notices")
            assert not redrive.loop.tick().counts.get("failed")
        assert "kafka" in {said["part"] for said in logged(caplog, "part_failed")}
    finally:
        broker.start()
    assert len(redrive.retries("gone", 2)) == 2
    redrive.until(lambda: not redrive.loop.health, "all is well again")
    redrive.settle()
    assert set(deliveries(redrive.read("gone.orders-billing-retry")).values()) == {1}
    assert [row["publish_attempt"] for row in redrive.sql("select * from decisions where report_topic = 'gone.reports'")] == [0, 0]


@pytest.mark.slow
def test_a_loop_may_start_before_its_broker(redrive: Redrive, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    redrive.domain("early")
    redrive.fails("early.orders", b"k", b"v")
    broker.stop()
    try:
        with caplog.at_level(logging.WARNING):
            redrive.restart()
            redrive.until(lambda: redrive.loop.tick() and redrive.loop.health, "it notices")
        assert KAFKA in redrive.loop.health
        assert not redrive.sql("select 1 from decisions where original_topic = 'early.orders'")
    finally:
        broker.start()
    redrive.retries("early", 1)
    redrive.settle()
    assert set(deliveries(redrive.read("early.orders-billing-retry")).values()) == {1}
    redrive.until(lambda: not redrive.loop.health, "all works again: what gave no answer is asked again after a while")


@pytest.mark.parametrize(
    ("what", "number", "seconds"),
    [
        # long enough that the client gives up on a phase of the transaction, and short enough that it need not
        pytest.param("frozen", signal.SIGSTOP, 30, id="slower than a transaction may be", marks=pytest.mark.slow),
        pytest.param("dozing", signal.SIGSTOP, 5, id="slow", marks=pytest.mark.slow),
        pytest.param("killed", signal.SIGKILL, 30, id="killed", marks=pytest.mark.slow),
    ],
)
def test_a_broker_that_fails_while_messages_are_sent_charges_nobody(
    redrive: Redrive, broker: Broker, monkeypatch: pytest.MonkeyPatch, what: str, number: signal.Signals, seconds: int
) -> None:
    redrive.domain(what)
    send = BulkLane._send
    failed: list[int] = []

    def mend() -> None:
        if number == signal.SIGSTOP:
            os.kill(failed[0], signal.SIGCONT)
        else:
            broker.start()

    mending = Timer(seconds, mend)

    def send_to_a_failing_broker(self: BulkLane, *arguments: Any) -> DataFrame:
        if not failed:
            assert broker.pid is not None
            failed.append(broker.pid)
            os.kill(broker.pid, number)
            mending.start()
        return send(self, *arguments)

    for key in range(20):
        redrive.fails(f"{what}.orders", str(key).encode(), b"v")
    monkeypatch.setattr(BulkLane, "_send", send_to_a_failing_broker)
    try:
        redrive.until(lambda: redrive.loop.tick() and failed, "something is due")
    finally:
        if failed:
            mending.join()
    redrive.retries(what, 20)
    redrive.settle()
    sent = deliveries(redrive.read(f"{what}.orders-billing-retry"))
    assert len(sent) == 20
    assert set(sent.values()) == {1}
    assert {row["publish_attempt"] for row in redrive.sql(f"select * from decisions where original_topic = '{what}.orders'")} == {0}
    redrive.until(lambda: not redrive.loop.health, "all works again: what gave no answer is asked again after a while")


@pytest.mark.slow
def test_a_broker_without_transactions_is_served_too(redrive: Redrive) -> None:
    redrive.domain("plain")
    redrive.topics("plain.orders-locked-retry", config={"max.message.bytes": "1000"})
    redrive.restart(transactions=False)
    try:
        well = redrive.fails("plain.orders", b"k", b"v")
        large = redrive.fails("plain.orders", b"large", b"v" * 2000, group="locked")
        (retry,) = redrive.retries("plain", 1)
        assert (retry.key, retry.value, retry.header("redrive-attempt")) == (well.key, well.value, "2")
        (dead,) = redrive.dead("plain", 1)
        assert (dead.key, dead.value) == (large.key, large.value)
        redrive.settle()
        assert len(redrive.read("plain.orders-billing-retry")) == 1
        states = redrive.sql("select consumer_group, state from messages where original_topic = 'plain.orders'")
        assert {(row["consumer_group"], row["state"]) for row in states} == {("billing", "sent"), ("locked", "dead")}
    finally:
        redrive.restart(transactions=True)
