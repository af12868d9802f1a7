"""Messages whose payload is not stored: reported by coordinates, sent from their original records, in both lanes and over a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.loop.harness import Headers, Record, Redrive, deliveries
from tests.unit.test_packed_keys import message

pytestmark = pytest.mark.long

DOMAIN = "apart"
SOURCE = f'apart,{DOMAIN}.references,redrive,,"^{DOMAIN}[.]",earliest,true,,reference\n'
PACKED = f'packed,{DOMAIN}.packed,uforwarder,billing,"^{DOMAIN}[.]",earliest,false,,\n'
HEADERS: Headers = (("tenant", b"acme"), ("none", None), ("bytes", b"\x00\xff"))


@pytest.fixture(scope="module")
def apart(redrive: Redrive) -> Iterator[Redrive]:
    """The loop, with a source that refers to original records, and with its timed lane."""
    seed = redrive.loop.settings.seeds / "sources.csv"
    before = seed.read_text(encoding="utf-8")
    first, rest = before.split("\n", 1)
    assert first.endswith(",adopt")
    rows = [f"{line}," for line in rest.splitlines() if line]
    seed.write_text("\n".join([f"{first},payload", *rows, SOURCE + PACKED]), encoding="utf-8")
    redrive.domain(DOMAIN)
    redrive.topics(f"{DOMAIN}.references", f"{DOMAIN}.packed")
    redrive.settle()
    yield redrive
    redrive.restart(look_ahead_seconds=0)
    seed.write_text(before, encoding="utf-8")
    redrive.settle()


def refer(redrive: Redrive, record: Record, error: str = "TimeoutError", pointer: Headers = ()) -> None:
    """Reports that a record failed, without its key, value and headers."""
    said: Headers = (
        ("redrive-error-class", error.encode()),
        ("redrive-original-topic", record.topic.encode()),
        ("redrive-original-partition", b"%d" % record.partition),
        ("redrive-original-offset", b"%d" % record.offset),
        ("redrive-original-timestamp", b"%d" % record.timestamp),
        ("redrive-consumer-group", b"billing"),
        ("redrive-failed-at", b"%d" % int(time.time() * 1000)),
    )
    redrive.write(f"{DOMAIN}.references", None, None, [*pointer, *said])


def written(redrive: Redrive, key: bytes, value: bytes | None) -> Record:
    partition, offset = redrive.write(f"{DOMAIN}.orders", key, value, HEADERS)
    return next(record for record in redrive.read(f"{DOMAIN}.orders") if (record.partition, record.offset) == (partition, offset))


@pytest.mark.parametrize("look_ahead", [pytest.param(0, id="bulk lane", marks=pytest.mark.slow), pytest.param(30, id="timed lane")])
def test_a_message_is_retried_and_dies_byte_for_byte(apart: Redrive, look_ahead: int) -> None:
    apart.restart(look_ahead_seconds=look_ahead)
    had = len(apart.read(f"{DOMAIN}.orders-billing-retry")), len(apart.read(f"{DOMAIN}.orders.dlq"))
    record = written(apart, b"\x00key", b"x" * 10_000)
    refer(apart, record)
    first = apart.retries(DOMAIN, had[0] + 1)[-1]
    assert (first.key, first.value, first.own_headers) == (b"\x00key", b"x" * 10_000, HEADERS)
    pointer = tuple(pair for pair in first.headers if pair[0] in ("redrive-delivery", "redrive-due"))
    refer(apart, record, pointer=pointer)
    second = apart.retries(DOMAIN, had[0] + 2)[-1]
    assert (second.value, second.header("redrive-attempt")) == (b"x" * 10_000, "3")
    refer(apart, record, "KeyError", tuple(pair for pair in second.headers if pair[0] in ("redrive-delivery", "redrive-due")))
    dead = apart.dead(DOMAIN, had[1] + 1)[-1]
    assert (dead.key, dead.value, dead.own_headers[: len(HEADERS)]) == (b"\x00key", b"x" * 10_000, HEADERS)
    apart.settle()
    rows = apart.sql(f"select key, value, by_reference from deliveries where original_topic = '{DOMAIN}.orders' and kind is not null")
    assert {(row["key"], row["value"], row["by_reference"]) for row in rows} == {(None, None, True)}


@pytest.mark.slow
def test_what_retention_has_removed_dies_saying_so_and_nothing_else_waits(apart: Redrive) -> None:
    apart.restart(look_ahead_seconds=0)
    had = len(apart.read(f"{DOMAIN}.orders-billing-retry")), len(apart.read(f"{DOMAIN}.orders.dlq"))
    removed, kept = written(apart, b"removed", b"1"), written(apart, b"kept", b"2")
    refer(apart, removed)
    refer(apart, kept)
    apart.decided(DOMAIN, len(apart.sql(f"select 1 from decisions where original_topic = '{DOMAIN}.orders'")))
    admin = AdminClient({**apart.kafka})
    until = TopicPartition(f"{DOMAIN}.orders", removed.partition, removed.offset + 1)
    for done in admin.delete_records([until]).values():
        done.result(20)
    retries = apart.retries(DOMAIN, had[0] + 1)[had[0] :]
    dead = apart.dead(DOMAIN, had[1] + 1)[had[1] :]
    assert [(record.key, record.value) for record in retries] == [(b"kept", b"2")]
    assert [(record.key, record.value, record.header("redrive-payload")) for record in dead] == [(None, None, "gone")]
    assert "PAYLOAD_GONE" in (dead[0].header("dlq-reason") or "") + (dead[0].header("dlq-error-class") or "")
    apart.settle()
    (row,) = apart.sql(f"select * from dead_letters where original_offset = {removed.offset} and original_topic = '{DOMAIN}.orders'")
    assert (row["reason"], row["omitted"], row["by_reference"], row["attempts"]) == ("send_failed", "payload", True, 1)
    assert set(deliveries(apart.read(f"{DOMAIN}.orders-billing-retry")).values()) == {1}


@pytest.mark.slow
def test_a_transactional_record_that_failed_before_its_end_is_sent(apart: Redrive) -> None:
    had = len(apart.read(f"{DOMAIN}.orders-billing-retry"))
    producer = Producer({**apart.kafka, "transactional.id": f"{DOMAIN}-app"})
    producer.init_transactions(20)
    producer.begin_transaction()
    places: list[Any] = []
    producer.produce(f"{DOMAIN}.orders", b"open", partition=0, on_delivery=lambda _, record: places.append(record))
    producer.flush(20)
    (place,) = places
    partition, offset, millis = place.partition(), place.offset(), place.timestamp()[1]
    refer(apart, Record(f"{DOMAIN}.orders", partition, offset, millis, None, b"open", ()))
    (retry,) = apart.retries(DOMAIN, had + 1)[had:]
    assert retry.value == b"open"
    producer.abort_transaction(20)


@pytest.mark.slow
def test_a_record_of_uforwarder_is_retried_with_its_original_key(apart: Redrive) -> None:
    had = len(apart.read(f"{DOMAIN}.orders-billing-retry"))
    packed = message(n1=2, b2=f"{DOMAIN}.orders".encode(), n4=10_000_017, n5=1_772_366_000_123_456_789, b6=b"\x00key")
    apart.write(f"{DOMAIN}.packed", packed, b"value", [("tenant", b"acme")])
    (retry,) = apart.retries(DOMAIN, had + 1)[had:]
    assert (retry.key, retry.value, retry.own_headers) == (b"\x00key", b"value", (("tenant", b"acme"),))
    assert (retry.header("redrive-original-offset"), retry.header("redrive-original-timestamp")) == ("10000017", "1772366000123")
    # a key that is no such message names no record: the report lies in the dead letter topic of its topic, as it came
    apart.topics(f"{DOMAIN}.packed.dlq")
    apart.write(f"{DOMAIN}.packed", b"order-17", b"value")
    (dead,) = apart.dead(DOMAIN, 1, topic="packed.dlq")
    assert (dead.key, dead.value) == (b"order-17", b"value")
