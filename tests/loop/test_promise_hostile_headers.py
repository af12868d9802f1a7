"""Whoever may write to the report topic can't reset or inflate an attempt count, redirect a message, or stop the loop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from orchestration.kafka.cluster import Range
from orchestration.kafka.records import Records, UnreadError
from orchestration.loop import event_rows, intake
from orchestration.loop.health import source
from tests.loop.harness import Headers, Record, Redrive


def said(record: Record, **changed: bytes | None) -> Headers:
    """The headers of a report of this record, some of them changed or (None) missing."""
    facts = {
        "error_class": b"TimeoutError",
        "original_topic": record.topic.encode(),
        "original_partition": str(record.partition).encode(),
        "original_offset": str(record.offset).encode(),
        "failed_at": str(int(time.time() * 1000)).encode(),
        "consumer_group": b"billing",
        **changed,
    }
    return [(f"redrive-{name.replace('_', '-')}", value) for name, value in facts.items() if value is not None]


def test_attempts_come_from_our_table_whatever_the_headers_say(redrive: Redrive) -> None:
    redrive.domain("forged")
    originals = [redrive.fails("forged.orders", b"k%d" % number, b"v%d" % number) for number in range(6)]
    retries = {retry.value: retry for retry in redrive.retries("forged", len(originals))}
    first = [retries[original.value] for original in originals]
    pointer = {name: value for name, value in first[0].headers if name in ("redrive-delivery", "redrive-due")}

    cases: list[tuple[Record, Headers]] = [
        # the headers are dropped by the consumer: recognised by where it failed
        (first[0], said(first[0])),
        # an attempt count of one's own
        (first[1], [*first[1].headers, ("redrive-attempt", b"-7"), ("redrive-attempt", b"1"), *said(first[1])]),
        # the pointer of another message
        (first[2], [*pointer.items(), *said(first[2])]),
        # a pointer that is garbage, and absurdly long
        (first[3], [("redrive-delivery", b"\xff" * 50_000), ("redrive-due", b"9" * 5_000), *said(first[3])]),
        # a pointer from the future
        (first[4], [("redrive-delivery", b"x"), ("redrive-due", b"253402300799999"), *said(first[4])]),
        # dropped, and the original coordinates named: the message is known, and was sent again before this
        (originals[5], said(originals[5])),
    ]
    for record, headers in cases:
        redrive.write("forged.reports", record.key, record.value, headers)
    decisions = redrive.decided("forged", 12)[6:]
    assert [(row["decision"], row["attempt"]) for row in decisions] == [("retry", 2)] * 6
    assert [row["message_id"] for row in decisions] == [f"billing:forged.orders/0/{record.offset}" for record in originals]


@pytest.mark.slow
def test_what_cannot_be_placed_is_no_first_failure_and_stops_nothing(redrive: Redrive) -> None:
    redrive.domain("hostile")
    record = Record("hostile.orders", 0, 5, 0, b"k", b"v", ())
    cases: list[tuple[Headers, str, str]] = [
        (said(record, original_offset=b"-1"), "orphan", "unreadable"),
        (said(record, original_partition=b"-2147483649"), "orphan", "unreadable"),
        (said(record, original_offset=b"9" * 5_000), "orphan", "unreadable"),
        (said(record, original_topic=b"no/such topic;"), "orphan", "unreadable"),
        (said(record, original_topic=None), "orphan", "unreadable"),
        ([], "orphan", "unreadable"),
        # a retry topic of ours, and nothing was sent there
        (said(record, original_topic=b"hostile.orders-billing-retry"), "orphan", "orphan"),
        (said(record, original_topic=b"hostile.orders.dlq"), "orphan", "orphan"),
        # a topic that the source doesn't speak for
        (said(record, original_topic=b"hostile.secrets"), "refused", "not_spoken_for"),
        (said(record, original_topic=b"hostile.reports"), "refused", "not_spoken_for"),
        # times and texts that are out of any range
        (said(record, failed_at=b"-99999999999999999999"), "retry", "retriable"),
        (said(Record("hostile.orders", 0, 6, 0, b"k", b"v", ()), failed_at=b"\xff", error_class=b"\xff\xfe" * 9_000), "retry", "retriable"),
        (said(Record("hostile.orders", 0, 7, 0, b"k", b"v", ()), consumer_group=b"a\nb"), "retry", "retriable"),
    ]
    for headers, _, _ in cases:
        redrive.write("hostile.reports", b"k", b"v", headers)
    decisions = redrive.decided("hostile", len(cases))
    assert [(row["decision"], row["reason"]) for row in decisions] == [(decision, reason) for _, decision, reason in cases]

    orphans = redrive.dead("hostile", 8, "reports.dlq")
    assert len(orphans) == 8
    assert {orphan.value for orphan in orphans} == {b"v"}
    assert len(redrive.sql("select * from messages where state = 'refused' and message_id like '%hostile.reports/%'")) == 2


NANOSECONDS = 1_700_000_000_000_000_000


def _write_stamped(redrive: Redrive, timestamps: list[int]) -> list[int]:
    """Reports failures in one batch, with these timestamps (0: now); returns the codes by which Kafka refused records of it."""
    refused: list[int] = []

    def written(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error.code())

    for offset, timestamp in enumerate(timestamps):
        headers = said(Record("stamped.orders", 0, offset, 0, b"k", b"v", ()))
        redrive._producer.produce("stamped.reports", b"v", b"k%d" % offset, 0, written, timestamp=timestamp, headers=list(headers))
    assert redrive._producer.flush(30) == 0
    return refused


@pytest.mark.slow
def test_a_timestamp_that_no_clock_tells_stops_no_source(redrive: Redrive) -> None:
    redrive.domain("stamped")
    # brokers before 4.0 take any time
    admin = AdminClient({**redrive.kafka})
    resource = ConfigResource(ResourceType.TOPIC, "stamped.reports")
    any_time = ConfigEntry("message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(any_time)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()
    deadline = time.monotonic() + 30
    while refused := _write_stamped(redrive, [0, NANOSECONDS, 0, 2**63 - 1, 0]):
        # the broker does not know of its new setting yet, and takes none of a batch; one code may tell the wrong records from the others
        assert len(refused) == 5
        assert time.monotonic() < deadline
        time.sleep(0.2)
    decisions = redrive.decided("stamped", 5)
    assert [(row["report_offset"], row["decision"], row["problems"]) for row in decisions] == [
        (0, "retry", []),
        (1, "retry", ["record"]),
        (2, "retry", []),
        (3, "retry", ["record"]),
        (4, "retry", []),
    ]
    assert {retry.key for retry in redrive.retries("stamped", 5)} == {b"k%d" % offset for offset in range(5)}
    events = redrive.sql("select detail from events where topic = 'stamped.reports' order by offset")
    assert [row["detail"] for row in events] == [None, f"timestamp {NANOSECONDS}", None, f"timestamp {2**63 - 1}", None]
    assert not redrive.loop.health
    # and it goes on, as before
    redrive.fails("stamped.orders", b"k5", b"v")
    redrive.decided("stamped", 6)
    assert not redrive.loop.intake._one_by_one


def test_a_source_that_cannot_be_read_says_so_and_stops_no_other(redrive: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive.domain("blind")
    redrive.settle()
    from_kafka = event_rows.from_kafka

    def breaks(*what: Any) -> DataFrame:
        records = from_kafka(*what)
        # as where a disk of the broker has changed a record
        broken = F.when(F.col("topic") == "blind.reports", F.raise_error(F.lit("CRC"))).otherwise(F.col("value"))
        return records.withColumn("value", broken.cast("binary"))

    def cannot(kafka: Mapping[str, str], group: str, part: Range, *_: object) -> Records:
        raise UnreadError("CRC32C of the batch is wrong")

    with monkeypatch.context() as patched:
        patched.setattr(event_rows, "is_of_kafka", lambda _: True)
        patched.setattr(event_rows, "from_kafka", breaks)
        patched.setattr(intake, "read_records", cannot)
        redrive.fails("blind.orders", b"unread", b"v")
        redrive.write("blind.spring-reports", b"k", b"v", [("kafka_dlt-original-topic", b"blind.orders")])
        redrive.until(lambda: redrive.loop.tick() and source("reports") in redrive.loop.health, "it is noticed")
        redrive.until(
            lambda: redrive.sql("select 1 from decisions where report_topic = 'blind.spring-reports'"), "the other source is read"
        )
        assert not redrive.sql("select 1 from decisions where report_topic = 'blind.reports'")
        trouble = json.loads(redrive.loop.settings.status_file.read_text())["trouble"]
        assert trouble["source reports"] == "offsets 0 to 0 of blind.reports/0 can't be read: CRC32C of the batch is wrong"
        assert redrive.loop.intake.unread(redrive.loop.intake.available(0)) == {"^[a-z]+[.]orders$"}
    redrive.decided("blind", 2)
    redrive.until(lambda: not redrive.loop.health, "all is well again")
