"""A dead letter of each header profile lies in its topic with exactly these bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from orchestration.answers.asking import Asking
from orchestration.rules.check import run_checks
from tests.loop.harness import Record, Redrive

Header = tuple[str, bytes | None]

WRITTEN_AT = 1_767_323_045_000
# a stated time counts for some days only
FAILED_AT = round(time.time() * 1000) - 3_600_000
OWN: tuple[Header, ...] = (("trace", b"\xff"), ("a", b"1"), ("a", None), ("authorization", b"secret"))


@dataclass(frozen=True)
class Letter:
    """What lies in the dead letter topic of a domain: its own headers, and what is said about its death, by the record that failed."""

    domain: str
    topic: str
    said: Callable[[Record], list[Header]]
    own: tuple[Header, ...] = OWN
    whole: bool = True


def _dlq(record: Record, reason: bytes) -> list[Header]:
    return [
        ("dlq-reason", reason),
        ("dlq-error-class", b"KeyError"),
        ("dlq-original-topic", record.topic.encode()),
        ("dlq-failed-at", f"{datetime.fromtimestamp(FAILED_AT / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{FAILED_AT % 1000:03}Z".encode()),
        ("dlq-attempts", b"1"),
        ("redrive-consumer-group", b"billing"),
    ]


def _safi(record: Record) -> list[Header]:
    return [
        (
            "x-dlq-metadata",
            b'{"original_headers":[{"key":"trace","value":"/w==","encoding":"base64"},{"key":"a","value":"1"},{"key":"a","value":null},'
            b'{"key":"authorization","value":"secret"}],"original_topic":"letterssafi.orders","original_consumer_group":"billing",'
            b'"original_timestamp":"2026-01-02T03:04:05.000Z","error_info":"KeyError: no answer within 2 s"}',
        ),
        ("redrive-header-profile", b"safi"),
    ]


def _spring(record: Record) -> list[Header]:
    return [
        ("kafka_dlt-exception-fqcn", b"KeyError"),
        ("kafka_dlt-exception-cause-fqcn", b"KeyError"),
        ("kafka_dlt-exception-message", b"no answer within 2 s"),
        ("kafka_dlt-original-topic", record.topic.encode()),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x00"),
        ("kafka_dlt-original-offset", record.offset.to_bytes(8, "big")),
        ("kafka_dlt-original-timestamp", record.timestamp.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("redrive-header-profile", b"spring"),
    ]


def _connect(record: Record) -> list[Header]:
    return [
        ("__connect.errors.topic", record.topic.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", str(record.offset).encode()),
        ("__connect.errors.connector.name", b"billing"),
        ("__connect.errors.stage", b"TASK_PUT"),
        ("__connect.errors.exception.class.name", b"KeyError"),
        ("__connect.errors.exception.message", b"no answer within 2 s"),
        ("redrive-header-profile", b"connect"),
    ]


LETTERS = [
    Letter(
        "lettersdlq", "lettersdlq.orders.dlq", lambda record: [*_dlq(record, b"no answer within 2 s"), ("redrive-header-profile", b"dlq")]
    ),
    Letter("letterssafi", "letterssafi.orders.dlq", _safi),
    Letter("lettersspring", "lettersspring.orders-billing-dlt", _spring),
    Letter("lettersconnect", "lettersconnect.orders.dlq", _connect),
    Letter(
        "lettersprivate",
        "lettersprivate.orders.dlq",
        lambda record: [*_dlq(record, b"fatal"), ("redrive-payload", b"omitted"), ("redrive-header-profile", b"dlq")],
        OWN[:3],
        whole=False,
    ),
]


@pytest.fixture(scope="module")
def failed(redrive: Redrive) -> dict[str, Record]:
    """What failed, by its domain: all before the loop turns, as a turn takes seconds."""
    records = {}
    for letter in LETTERS:
        redrive.domain(letter.domain)
        if letter.topic.endswith("-dlt"):
            redrive.topics(letter.topic)
        _, offset = redrive.write(f"{letter.domain}.orders", b"k", b"v", OWN)
        records[letter.domain] = Record(f"{letter.domain}.orders", 0, offset, WRITTEN_AT, b"k", b"v", OWN)
        redrive.report(records[letter.domain], error="KeyError", failed_at=FAILED_AT)
    return records


@pytest.mark.parametrize("letter", LETTERS, ids=lambda letter: letter.domain)
def test_a_dead_letter_lies_there_byte_for_byte(redrive: Redrive, failed: dict[str, Record], letter: Letter) -> None:
    record = failed[letter.domain]
    (dead,) = redrive.dead(letter.domain, 1, letter.topic.removeprefix(f"{letter.domain}."))
    (row,) = redrive.sql(f"select * from decisions where original_topic = '{record.topic}'")
    assert (dead.key, dead.value) == ((b"k", b"v") if letter.whole else (None, None))
    assert list(dead.headers) == [
        *letter.own,
        *letter.said(record),
        ("redrive-delivery", row["delivery_id"].encode()),
        ("redrive-due", str(round(row["due_at"].timestamp() * 1000)).encode()),
        ("redrive-attempt", b"1"),
        ("redrive-message-id", f"billing:{record.topic}/0/{record.offset}".encode()),
        ("redrive-original-topic", record.topic.encode()),
        ("redrive-original-partition", b"0"),
        ("redrive-original-offset", str(record.offset).encode()),
        ("redrive-original-timestamp", str(record.timestamp).encode()),
    ]


@pytest.mark.slow
def test_a_class_has_a_dead_letter_topic_of_its_own_which_check_makes(redrive: Redrive) -> None:
    redrive.domain("lettersclass")
    record = redrive.fails("lettersclass.orders", b"k", b"v", error="letters.PoisonError")
    consumer = Consumer({**redrive.kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(record.topic, 0, record.offset)], asynchronous=False)
    consumer.close()
    made = {finding.what: finding for finding in run_checks(Asking(redrive.loop.settings), create=True)}[
        "topic letters.lettersclass.orders.bad"
    ]
    assert (made.ok, made.found) == (True, "made, with 1 partitions")
    (dead,) = redrive.until(lambda: redrive.read("letters.lettersclass.orders.bad"), "a dead letter")
    assert (dead.header("dlq-error-class"), dead.header("dlq-original-topic")) == ("letters.PoisonError", record.topic)
    assert redrive.read("lettersclass.orders.dlq") == []
