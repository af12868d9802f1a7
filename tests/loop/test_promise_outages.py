"""What does not work for a while: destinations, brokers, tables. It waits, says so, charges nothing, loses nothing, stops no other."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import Column, DataFrame, DataFrameWriterV2
from pyspark.sql.types import StructType

from orchestration.demo.broker import Broker
from orchestration.kafka.cluster import Cluster, Topic
from orchestration.loop.health import KAFKA, LEDGERS
from orchestration.loop.intake import Intake
from orchestration.loop.loop import Loop
from orchestration.loop.sending import PublishStep
from orchestration.loop.stored import Stored
from orchestration.tables.decide_statements import DecideError, DecideRunner
from orchestration.tables.ledgers import AppendError, Ledgers
from tests.log_events import logged
from tests.loop.harness import Redrive, deliveries

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
    assert "it is not made: none of the topics is there" in redrive.loop.state.window.paused["gone.orders-billing-retry"].why
    assert redrive.loop.steps.publish.missing_topics.topic_maker.made == 2


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
    assert not redrive.loop.health


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
    send = PublishStep._send
    failed: list[int] = []

    def mend() -> None:
        if number == signal.SIGSTOP:
            os.kill(failed[0], signal.SIGCONT)
        else:
            broker.start()

    mending = Timer(seconds, mend)

    def send_to_a_failing_broker(self: PublishStep, *arguments: Any) -> DataFrame:
        if not failed:
            assert broker.pid is not None
            failed.append(broker.pid)
            os.kill(broker.pid, number)
            mending.start()
        return send(self, *arguments)

    for key in range(20):
        redrive.fails(f"{what}.orders", str(key).encode(), b"v")
    monkeypatch.setattr(PublishStep, "_send", send_to_a_failing_broker)
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
    assert not redrive.loop.health


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


def lock_catalog(state: Path) -> Callable[[], None]:
    """Another process that keeps the catalog's database to itself; returns how to end that."""
    other = sqlite3.connect(state / "catalog.db", isolation_level=None, check_same_thread=False)
    other.execute("begin exclusive")
    return other.close


def lose_directory(state: Path) -> Callable[[], None]:
    """A warehouse that can neither be written to nor read; returns how to end that."""
    directory = state / "warehouse" / "redrive" / "publish_results" / "data"
    moved = directory.rename(directory.with_name("gone"))
    directory.touch()

    def mend() -> None:
        directory.unlink()
        moved.rename(directory)

    return mend


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "fail", "seconds"),
    [pytest.param("busy", lock_catalog, 4, id="catalog locked"), pytest.param("unwritable", lose_directory, 8, id="warehouse gone")],
)
def test_what_was_sent_while_tables_cannot_be_written_is_not_sent_again(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch, what: str, fail: Callable[[Path], Callable[[], None]], seconds: int
) -> None:
    redrive.domain(what)
    send = PublishStep._send
    mending: list[Timer] = []

    def send_and_fail(self: PublishStep, *arguments: Any) -> DataFrame:
        results = send(self, *arguments)
        if not mending:
            mending.append(Timer(seconds, fail(redrive.loop.settings.home)))
            mending[0].start()
        return results

    # there has been a result before: the directory exists
    redrive.fails(f"{what}.orders", b"before", b"v")
    redrive.retries(what, 1)
    redrive.settle()
    monkeypatch.setattr(PublishStep, "_send", send_and_fail)
    for number in range(3):
        redrive.fails(f"{what}.orders", f"k{number}".encode(), b"v")
    redrive.retries(what, 4)
    mending[0].join()
    redrive.until(lambda: not redrive.loop.tick().did_something and not redrive.loop.health, "all is well again")
    sent = deliveries(redrive.read(f"{what}.orders-billing-retry"))
    assert len(sent) == 4
    assert set(sent.values()) == {1}
    states = redrive.sql(f"select state from messages where original_topic = '{what}.orders'")
    assert [row["state"] for row in states] == ["sent"] * 4


@pytest.mark.slow
def test_one_noisy_source_does_not_starve_another(redrive: Redrive) -> None:
    redrive.domain("noisy")
    redrive.domain("quiet")
    first = redrive.fails("noisy.orders", b"0", b"v")
    said = [(name, value) for name, value in redrive.read("noisy.reports")[0].headers if name != "redrive-original-offset"]
    for offset in range(first.offset + 1, first.offset + 7_000):
        redrive._producer.produce("noisy.reports", b"v", str(offset), headers=[*said, ("redrive-original-offset", str(offset))])
    redrive._producer.flush(60)
    redrive.fails("quiet.orders", b"k", b"v")
    taken = []
    while not redrive.sql("select 1 from decisions where original_topic = 'quiet.orders'"):
        taken.append(redrive.loop.tick().counts.get("events", 0))
    # in bounded steps, and the quiet one in the first of them, whichever was noticed first
    assert max(taken) <= redrive.loop.settings.intake_max_rows
    assert sum(taken) <= redrive.loop.settings.intake_max_rows
    redrive.until(
        lambda: redrive.sql("select count(*) as n from decisions where original_topic = 'noisy.orders'")[0]["n"] == 7_000, "all are decided"
    )


def _lock_results(monkeypatch: pytest.MonkeyPatch, times: int, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
    """Refuses so many appends of results; what it returns grows with each."""
    append = Ledgers.append
    refused: list[str] = []

    def locked(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        if ledger == "publish_results" and len(refused) < times:
            refused.append(ledger)
            meanwhile()
            raise AppendError("database is locked")
        return append(self, ledger, rows, *when)

    monkeypatch.setattr(Ledgers, "append", locked)
    return refused


def test_results_that_cannot_be_written_down_are_kept_and_nothing_is_sent_again(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("locked")
    refused = _lock_results(monkeypatch, 3)
    redrive.fails("locked.orders", b"k", b"v")
    assert len(redrive.retries("locked", 1)) == 1
    assert "database is locked" in redrive.loop.health[LEDGERS].why
    redrive.fails("locked.orders", b"other", b"v")
    redrive.until(lambda: redrive.loop.steps.publish.unrecorded is None and len(refused) == 3, "the results are written down in the end")
    redrive.retries("locked", 2)
    redrive.settle()
    assert set(deliveries(redrive.read("locked.orders-billing-retry")).values()) == {1}
    states = redrive.sql("select state from messages where original_topic = 'locked.orders'")
    assert [row["state"] for row in states] == ["sent", "sent"]
    assert LEDGERS not in redrive.loop.health


@pytest.mark.slow
def test_results_that_spark_has_lost_do_not_stop_the_loop(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("lost")

    def an_executor_dies() -> None:
        for kept in redrive.loop.spark.sparkContext._jsc.getPersistentRDDs().values():
            kept.unpersist(True)

    _lock_results(monkeypatch, 1, an_executor_dies)
    redrive.fails("lost.orders", b"k", b"v")
    redrive.until(lambda: redrive.loop.tick() and redrive.loop.steps.publish.unrecorded, "results that can't be appended")
    redrive.until(lambda: redrive.sql("select 1 from messages where original_topic = 'lost.orders' and state = 'sent'"), "it is sent again")
    redrive.settle()
    # the same delivery, twice: what a consumer must be able to cope with
    assert list(deliveries(redrive.read("lost.orders-billing-retry")).values()) == [2]
    assert LEDGERS not in redrive.loop.health


@pytest.mark.slow
def test_a_commit_whose_answer_got_lost_is_found_and_not_repeated(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("unheard")
    append = Ledgers.append
    unheard: list[int] = []

    def deaf(self: Ledgers, ledger: str, rows: DataFrame, *when: Any) -> int:
        if ledger == "publish_results" and not unheard:
            unheard.append(append(self, ledger, rows, *when))
            self.batch -= 1
            raise AppendError("connection reset")
        return append(self, ledger, rows, *when)

    monkeypatch.setattr(Ledgers, "append", deaf)
    redrive.fails("unheard.orders", b"k", b"v")
    redrive.retries("unheard", 1)
    redrive.until(lambda: redrive.loop.steps.publish.unrecorded is None and bool(unheard), "it is found")
    redrive.settle()
    assert len(redrive.sql("select 1 from publish_results where original_topic = 'unheard.orders'")) == 1
    assert len(redrive.read("unheard.orders-billing-retry")) == 1


def test_steps_that_fail_after_they_have_written_lose_nothing(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("halfway")
    take, tick_row = Intake.take, Stored.row
    failed: list[str] = []

    def taken_and_failed(self: Intake, *what: Any) -> int:
        events = take(self, *what)
        if events and "take" not in failed:
            failed.append("take")
            raise RuntimeError("503 Service Unavailable")
        return events

    def no_row(self: Stored, *what: Any) -> DataFrame:
        if "take" in failed and "row" not in failed:
            failed.append("row")
            raise RuntimeError("503 Service Unavailable")
        return tick_row(self, *what)

    def decided_and_failed(self: DecideRunner, *what: Any) -> None:
        run(self, *what)
        if "decide" not in failed:
            failed.append("decide")
            # by the next decide run there are other rules: by these, the message would be sent elsewhere
            routes.write_text(routes.read_text().replace("-retry", "-retry-elsewhere"))
            raise DecideError("503 Service Unavailable")

    routes, run = redrive.loop.settings.seeds / "routes.csv", DecideRunner.run
    before = routes.read_text()
    monkeypatch.setattr(Intake, "take", taken_and_failed)
    monkeypatch.setattr(Stored, "row", no_row)
    monkeypatch.setattr(DecideRunner, "run", decided_and_failed)
    redrive.fails("halfway.orders", b"k", b"v")
    redrive.retries("halfway", 1)
    redrive.until(lambda: LEDGERS not in redrive.loop.health, "the tables are read and written again")
    routes.write_text(before)
    assert sorted(failed) == ["decide", "row", "take"]
    assert set(deliveries(redrive.read("halfway.orders-billing-retry")).values()) == {1}
    assert len(redrive.sql("select 1 from events where topic = 'halfway.reports'")) == 1
    assert [row["topic"] for row in redrive.sql("select topic from deliveries where original_topic = 'halfway.orders'")] == [
        "halfway.orders-billing-retry"
    ]


@pytest.mark.long
def test_what_is_not_known_to_be_sent_is_sent_again_by_the_next_loop_when_that_is_safe(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive.domain("unanswered")
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "_publish", lambda *_: None)
        redrive.fails("unanswered.orders", b"k", b"v")
        redrive.decided("unanswered", 1)
    loop = redrive.loop
    now = loop.clock.now()
    # long enough for a restart on a busy machine
    not_before = now + timedelta(seconds=120)
    (delivery,) = redrive.sql("select * from deliveries where original_topic = 'unanswered.orders'")
    result = {**{name: delivery[name] for name in ("delivery_id", "due_at", "kind", "topic", "original_topic")}, "outcome": "unknown"}
    schema = loop.spark.table(loop.ledgers.name("publish_results")).schema
    row = {**result, "not_before": not_before}
    frame = loop.spark.createDataFrame([tuple(row.values())], StructType([schema[name] for name in row]))
    loop.ledgers.append("publish_results", frame, now)

    redrive.restart()
    redrive.settle()
    assert redrive.loop.clock.now() < not_before, "the restart took too long for this test to say anything"
    assert redrive.read("unanswered.orders-billing-retry") == []
    (record,) = redrive.until(lambda: redrive.read("unanswered.orders-billing-retry"), "it is sent again", seconds=240)
    assert record.timestamp >= not_before.timestamp() * 1000
    redrive.settle()


def test_a_topic_that_was_created_again_is_read_from_its_beginning(redrive: Redrive) -> None:
    redrive.domain("renewed")
    admin = AdminClient({**redrive.kafka})
    redrive.fails("renewed.orders", b"before", b"v")
    assert [row["report_offset"] for row in redrive.decided("renewed", 1)] == [0]
    for deleted in admin.delete_topics(["renewed.reports"]).values():
        deleted.result()
    redrive.loop.tick()
    redrive.topics("renewed.reports")
    redrive.fails("renewed.orders", b"after", b"v")
    assert [row["report_offset"] for row in redrive.decided("renewed", 2)] == [0, 0]
    redrive.retries("renewed", 2)


@pytest.mark.slow
def test_partitions_that_are_added_are_read_from_their_beginning(redrive: Redrive) -> None:
    redrive.domain("wider")
    redrive.fails("wider.orders", b"before", b"v")
    redrive.decided("wider", 1)
    admin = AdminClient({**redrive.kafka})
    for grown in admin.create_partitions([NewPartitions("wider.reports", 2)]).values():
        grown.result()
    # the producer must have heard of it
    redrive._producer.list_topics("wider.reports", timeout=10)
    (first,) = redrive.read("wider.orders")
    redrive.write(
        "wider.reports",
        b"after",
        b"v",
        [
            ("redrive-error-class", b"TimeoutError"),
            ("redrive-original-topic", b"wider.orders"),
            ("redrive-original-partition", b"0"),
            ("redrive-original-offset", str(first.offset + 7).encode()),
            ("redrive-consumer-group", b"billing"),
        ],
        partition=1,
    )
    assert {(row["report_partition"], row["report_offset"]) for row in redrive.decided("wider", 2)} == {(0, 0), (1, 0)}


def test_what_retention_removed_unread_is_a_gap_that_can_be_seen(redrive: Redrive, caplog: pytest.LogCaptureFixture) -> None:
    redrive.domain("short")
    redrive.fails("short.orders", b"read", b"v")
    redrive.decided("short", 1)
    for number in range(4):
        redrive.fails("short.orders", f"late-{number}".encode(), b"v")
    admin = AdminClient({**redrive.kafka})
    for removed in admin.delete_records([TopicPartition("short.reports", 0, 4)]).values():
        removed.result()
    decisions = redrive.decided("short", 3)
    assert sorted((row["decision"], row["report_offset"]) for row in decisions if row["decision"] != "note") == [("retry", 0), ("retry", 4)]
    (gap,) = redrive.sql("select * from gaps where topic = 'short.reports'")
    assert (gap["partition"], gap["first_offset"], gap["last_offset"], gap["rows_missing"]) == (0, 1, 3, 3)
    (said,) = logged(caplog, "unread_records_removed")
    assert (said["topic"], said["partition"], said["first_offset"], said["last_offset"]) == ("short.reports", 0, 1, 3)


def test_a_partition_that_was_cut_short_is_a_gap_and_what_is_written_there_anew_is_read(
    redrive: Redrive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    redrive.domain("cut")
    for number in range(3):
        redrive.fails("cut.orders", b"lost-%d" % number, b"v")
    assert [row["report_offset"] for row in redrive.decided("cut", 3)] == [0, 1, 2]
    # a topic that is created again under the same id: what an unclean election of a leader leaves
    describe = Cluster.describe
    known = redrive.loop.cluster.describe(["cut.reports"])["cut.reports"].id

    def still_the_same(self: Cluster, names: Iterable[str]) -> dict[str, Topic]:
        found = describe(self, names)
        return {name: replace(topic, id=known) if name == "cut.reports" else topic for name, topic in found.items()}

    monkeypatch.setattr(Cluster, "describe", still_the_same)
    admin = AdminClient({**redrive.kafka})
    for deleted in admin.delete_topics(["cut.reports"]).values():
        deleted.result()
    redrive.loop.tick()
    redrive.topics("cut.reports")
    redrive.write("cut.reports", b"k", b"before anybody could notice")
    redrive.until(lambda: redrive.sql("select 1 from gaps where topic = 'cut.reports'"), "the gap is noticed")
    (said,) = logged(caplog, "partition_truncated")
    assert (said["topic"], said["partition"]) == ("cut.reports", 0)
    assert (said["end_offset"], said["read_up_to"], said["continues_at"]) == (1, 3, 1)
    redrive.fails("cut.orders", b"anew-1", b"v")
    redrive.decided("cut", 5)
    redrive.restart()
    redrive.fails("cut.orders", b"anew-2", b"v")
    redrive.fails("cut.orders", b"anew-3", b"v")
    decisions = [row for row in redrive.decided("cut", 7) if row["decision"] != "note"]
    assert [row["report_offset"] for row in decisions] == [0, 1, 1, 2, 2, 3]
    assert len({row["input_id"] for row in decisions}) == 6
    keys = {retry.key for retry in redrive.retries("cut", 6)}
    assert keys == {b"lost-0", b"lost-1", b"lost-2", b"anew-1", b"anew-2", b"anew-3"}
    (gap,) = redrive.sql("select * from gaps where topic = 'cut.reports'")
    assert (gap["partition"], gap["first_offset"], gap["last_offset"], gap["rows_missing"]) == (0, 1, 2, 2)
    # two inputs never have one name
    assert redrive.sql("select 1 from events group by topic_id, partition, offset, index having count(*) > 1") == []


def test_an_append_that_lands_after_its_answer_got_lost_leaves_nothing_undecided(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("tardy")
    append, overwrite = Ledgers.append, DataFrameWriterV2.overwrite
    appends: list[str] = []
    late: list[Callable[[], None]] = []

    def noted(self: Ledgers, ledger: str, *what: Any) -> int:
        appends.append(ledger)
        return append(self, ledger, *what)

    def unanswered(self: DataFrameWriterV2, condition: Column) -> None:
        if appends[-1] == "events" and not late:
            late.append(lambda: overwrite(self, condition))
            raise ConnectionResetError("connection reset")
        overwrite(self, condition)
        if len(late) == 1:
            # after the next commit of this loop, whatever it is
            late.append(lambda: None)
            with pytest.raises(Exception, match="conflict"):
                late[0]()

    monkeypatch.setattr(Ledgers, "append", noted)
    monkeypatch.setattr(DataFrameWriterV2, "overwrite", unanswered)
    redrive.fails("tardy.orders", b"k", b"v")
    redrive.retries("tardy", 1)
    redrive.settle()
    assert len(late) == 2
    assert len(redrive.sql("select 1 from events where topic = 'tardy.reports'")) == 1
    assert len(redrive.sql("select 1 from decisions where report_topic = 'tardy.reports'")) == 1
    ledgers = " union all ".join(f"select distinct batch from {ledger}" for ledger in ("events", "ticks", "publish_results"))
    assert redrive.sql(f"select batch from ({ledgers}) group by batch having count(*) > 1") == []


def test_a_clock_that_is_wrong_at_the_consumer_burns_no_attempt(redrive: Redrive) -> None:
    redrive.domain("clocks")
    for name, minutes in (("ahead", 5), ("behind", -5), ("far", -60 * 24 * 400)):
        at = redrive.loop.clock.now() + timedelta(minutes=minutes)
        redrive.fails("clocks.orders", name.encode(), b"v", failed_at=max(0, round(at.timestamp() * 1000)))
    redrive.fails("clocks.orders", b"none", b"v", failed_at=-1)
    retries = redrive.retries("clocks", 4)
    assert {retry.header("redrive-attempt") for retry in retries} == {"2"}
    for retry in retries:
        due = retry.header("redrive-due")
        assert due is not None
        assert retry.timestamp >= int(due)
    # nor is it postponed: each was due a second after it was taken in, at the latest
    late = redrive.sql(
        "select count(*) as n from decisions where original_topic = 'clocks.orders' and due_at > recorded_at + interval 1 second"
    )
    assert late[0]["n"] == 0
