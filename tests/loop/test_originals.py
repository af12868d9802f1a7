"""Payloads that were not stored: the publisher reads them from the original records, on a real broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from orchestration.kafka.cluster import Cluster
from orchestration.rules.check import _originals
from orchestration.rules.seed_rows import Row, Seeds
from publisher import PublisherSettings, epoch_ms, originals, publish
from publisher.clients import make_reader
from publisher.contract import GONE, READY
from publisher.errors import Trouble
from publisher.originals import Original, Originals
from tests.unit.publisher_kit.rows import outcomes, plain, stops
from tests.unit.publisher_kit.tables import ERROR_KINDS

Create = Callable[..., str]
Written = Sequence[tuple[int, int]]


@pytest.fixture
def settings(kafka: dict[str, str], topic_prefix: str) -> PublisherSettings:
    return PublisherSettings(kafka={"log_level": "0", **kafka}, error_kinds=ERROR_KINDS, instance=topic_prefix, metadata_timeout_ms=5_000)


def write(kafka: Mapping[str, str], topic: str, values: Sequence[bytes | None], headers: Any = None, key: bytes | None = b"k") -> Written:
    """Writes values to partition 0; returns their offsets and timestamps."""
    producer, written = Producer({**kafka, "linger.ms": 5}), list[tuple[int, int]]()

    def noted(_: object, record: Any) -> None:
        written.append((record.offset(), record.timestamp()[1]))

    for value in values:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            headers=headers,
            on_delivery=noted,
        )
    producer.flush(30)
    return written


@contextmanager
def no_reading(kafka: Mapping[str, str], topic: str) -> Iterator[None]:
    """Meanwhile, nobody may read a topic."""
    what = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY)
    admin = AdminClient(dict(kafka))
    for made in admin.create_acls([AclBinding(*what)]).values():
        made.result(20)
    try:
        yield
    finally:
        for deleted in admin.delete_acls([AclBindingFilter(*what)]).values():
            deleted.result(20)


def row(number: int, topic: str, source: str, offset: int, **more: Any) -> dict[str, Any]:
    """A retry by reference."""
    return {
        **dict.fromkeys(READY.names),
        "delivery_id": f"d{number}",
        "due_at": datetime(2026, 1, 2, tzinfo=UTC),
        "kind": "retry",
        "message_id": f"group:{source}/0/{offset}",
        "topic": topic,
        "partition": 0,
        "headers": [],
        "by_reference": True,
        "attempt": 2,
        "original_topic": source,
        "original_partition": 0,
        "original_offset": offset,
        **more,
    }


def send(rows: Sequence[Mapping[str, Any]], settings: PublisherSettings) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist(list(rows), schema=READY)
    return [result for some in publish([batch], settings, 0, epoch_ms) for result in plain(some)]


def sent(kafka: Mapping[str, str], topic: str, count: int) -> list[Any]:
    """The first committed records of a topic."""
    consumer = Consumer({**kafka, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += [message for message in consumer.consume(count, 1) if message.error() is None]
    consumer.close()
    return found


def own(record: Any) -> list[tuple[str, bytes | None]]:
    """The headers of a record that are not redrive's."""
    return [pair for pair in record.headers() or () if not pair[0].startswith("redrive-")]


def test_a_row_goes_out_as_its_original_record_byte_for_byte(
    kafka: dict[str, str], create_topic: Create, settings: PublisherSettings
) -> None:
    source, topic = create_topic("source"), create_topic("t")
    headers = [("a", b"\x00\xff"), ("a", b""), ("b", None), ("é", b"1")]
    values = [b"\x00\x01", b"", None, b"x" * 100_000]
    places = write(kafka, source, values, headers)
    rows = [row(number, topic, source, offset) for number, (offset, _) in enumerate(reversed(places))]
    # what the report added to the message follows; what it had of the message's own headers is not sent twice
    rows[0]["headers"] = [{"key": "b", "value": None}, {"key": "trace", "value": b"1"}]
    kept = {**row(9, topic, source, 0), "by_reference": None, "key": b"stored", "value": b"stored"}

    results = send([*rows[:2], kept, *rows[2:]], settings)

    assert set(outcomes(results).values()) == {"delivered"}
    records = sent(kafka, topic, 5)
    assert [record.value() for record in records] == [b"x" * 100_000, None, b"stored", b"", b"\x00\x01"]
    assert [record.key() for record in records] == [b"k", b"k", b"stored", b"k", b"k"]
    assert [own(record) for record in records] == [[*headers, ("trace", b"1")], headers, [], headers, headers]
    assert dict(records[0].headers())["redrive-attempt"] == b"2"


def test_what_is_gone_fails_for_good_and_a_dead_letter_says_so(
    kafka: dict[str, str], create_topic: Create, settings: PublisherSettings
) -> None:
    source, topic = create_topic("source"), create_topic("t")
    places = write(kafka, source, [b"%d" % number for number in range(10)], [("Secret", b"s"), ("x-dlq-metadata", b"{}"), ("kept", b"1")])
    admin = AdminClient(dict(kafka))
    for removed in admin.delete_records([TopicPartition(source, 0, 4)]).values():
        removed.result(20)
    millis = places[9][1]
    moment = datetime.fromtimestamp(millis // 1000, UTC) + timedelta(milliseconds=millis % 1000)
    dead = {"kind": "dead_letter", "dead_letter_headers": [{"key": "dlq-reason", "value": b"why"}], "denied_headers": ["secret", "^X-DLQ"]}
    cases = {
        "removed": row(0, topic, source, 3),
        "there": row(1, topic, source, 4),
        "beyond the end": row(2, topic, source, 10_000),
        "no topic": row(3, topic, f"{source}-missing", 0),
        "no partition": row(4, topic, source, 4, original_partition=7),
        "its timestamp": row(5, topic, source, 9, original_timestamp=moment - timedelta(milliseconds=999)),
        "another timestamp": row(6, topic, source, 9, original_timestamp=moment + timedelta(seconds=1)),
        "dead and removed": row(7, topic, source, 3, **dead),
        "dead and there": row(8, topic, source, 5, **dead),
    }

    results = send(list(cases.values()), settings)

    assert not stops(results), results
    found = {name: next(result for result in results if result["delivery_id"] == case["delivery_id"]) for name, case in cases.items()}
    gone = {"removed", "beyond the end", "no topic", "no partition", "another timestamp"}
    assert {name for name, result in found.items() if result["outcome"] == "failed"} == gone
    assert {name for name, result in found.items() if result["outcome"] == "delivered"} == cases.keys() - gone
    assert {(found[name]["error_name"], found[name]["error_kind"]) for name in gone} == {(GONE, "fatal")}
    assert f"{source}/0/3" in found["removed"]["error_message"]
    assert {name: result["omitted"] for name, result in found.items() if result["omitted"]} == {"dead and removed": "payload"}
    records = sent(kafka, topic, 4)
    assert [record.value() for record in records] == [b"4", b"9", None, b"5"]
    assert own(records[2]) == [("dlq-reason", b"why")]
    assert dict(records[2].headers())["redrive-payload"] == b"gone"
    assert own(records[3]) == [("kept", b"1"), ("dlq-reason", b"why")]
    assert "redrive-payload" not in dict(records[3].headers())


def test_many_are_read_in_parts_from_places_that_lie_apart(
    kafka: dict[str, str], create_topic: Create, settings: PublisherSettings
) -> None:
    source, topic = create_topic("source"), create_topic("t")
    write(kafka, source, [b"%d" % number for number in range(30_000)])
    wanted = [*range(0, 30_000, 300), 29_999, 3, 3, *range(7_000, 9_000)]
    results = send([row(number, topic, source, offset) for number, offset in enumerate(wanted)], settings)
    assert Counter((result["outcome"], result["error_message"]) for result in results) == {("delivered", None): len(wanted)}
    assert [int(record.value()) for record in sent(kafka, topic, len(wanted))] == wanted


def test_a_consumer_that_stays_open_reads_on(kafka: dict[str, str], create_topic: Create, settings: PublisherSettings) -> None:
    source = create_topic("source", partitions=2)
    write(kafka, source, [b"%d" % number for number in range(10)])
    reader = Originals(settings)
    for offsets in ([3, 4], [3], [9, 0], [5]):
        found = reader.read([(source, 0, offset) for offset in offsets] + [(source, 1, 0)])
        first = [original for place, original in found.items() if place[1] == 0]
        assert {original.value for original in first if isinstance(original, Original)} == {b"%d" % offset for offset in offsets}
        assert isinstance(found[source, 1, 0], Trouble)
    reader.close()
    assert reader.read([]) == {}


def test_a_broker_that_does_not_know_a_partition_yet_is_asked_again(
    kafka: dict[str, str], create_topic: Create, settings: PublisherSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, answers = create_topic("source", partitions=2), [1, 0, 0, 0, 0]
    (offset, _), *_ = write(kafka, source, [b"original"])
    monkeypatch.setattr("publisher.originals._LOOKS_AGAIN", (0.0, 0.0, 0.0))

    class Behind:
        """A consumer whose first answer about topics lacks a partition."""

        def __init__(self, consumer: Consumer) -> None:
            self._consumer = consumer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._consumer, name)

        def list_topics(self, *arguments: Any) -> Any:
            found = self._consumer.list_topics(*arguments)
            if answers.pop(0):
                del found.topics[source].partitions[0]
            return found

    make = make_reader
    monkeypatch.setattr(originals, "make_reader", lambda *arguments: Behind(make(*arguments)))
    reader = Originals(settings)
    found = reader.read([(source, 0, offset), (source, 7, 0)])
    assert getattr(found[source, 0, offset], "value", None) == b"original"
    # partition 7 was asked for four times; it is not asked for again
    assert isinstance(found[source, 7, 0], Trouble)
    assert len(answers) == 1
    assert isinstance(reader.read([(source, 7, 1)])[source, 7, 1], Trouble)
    assert answers == []
    reader.close()


def test_what_an_aborted_transaction_wrote_is_read_too(kafka: dict[str, str], create_topic: Create, settings: PublisherSettings) -> None:
    source = create_topic("source")
    producer = Producer({**kafka, "transactional.id": source})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(source, b"aborted", partition=0)
    producer.flush(20)
    producer.abort_transaction(20)
    write(kafka, source, [b"next"])
    found = Originals(settings).read([(source, 0, offset) for offset in range(3)])
    assert [getattr(found[source, 0, offset], "value", None) for offset in range(3)] == [b"aborted", None, b"next"]


def test_what_may_not_be_read_stays_due_and_pauses_its_destination(
    kafka: dict[str, str], create_topic: Create, settings: PublisherSettings
) -> None:
    source, other, topic, free = create_topic("source"), create_topic("other"), create_topic("t"), create_topic("free")
    write(kafka, source, [b"1"])
    write(kafka, other, [b"2"])
    rows = [row(0, topic, source, 0), row(1, topic, other, 0), row(2, free, other, 0)]
    with no_reading(kafka, source):
        results = send(rows, settings)
    assert outcomes(results) == {"d2": "delivered"}
    assert [stopped for stopped, _, _ in stops(results)] == [topic]
    (why,) = (result["error_message"] for result in results if result["outcome"] == "stopped")
    assert f"{source}/0/0 can't be read" in why
    assert outcomes(send(rows[:2], settings)) == {"d0": "delivered", "d1": "delivered"}


def test_a_check_says_which_original_topics_cannot_be_relied_on(kafka: dict[str, str], create_topic: Create) -> None:
    compacted, denied = create_topic("compacted", **{"cleanup.policy": "compact"}), create_topic("denied")
    short, ever = create_topic("short", **{"retention.ms": "5400000"}), create_topic("ever", **{"retention.ms": "-1"})
    others, shared = create_topic("others"), create_topic("shared")
    names = [compacted, denied, short, ever]
    said = {"source": "failures", "dialect": "redrive", "speaks_for": " ".join(names), "payload": "reference"}
    sources = [
        said,
        {**said, "source": "others", "speaks_for": others, "payload": ""},
        # its dead letters bring their payload only if the group copies it
        {**said, "source": "shared", "speaks_for": f"{shared} {denied}", "payload": "", "dialect": "share-group"},
    ]
    seeds = Seeds({"sources": tuple(Row(line, row) for line, row in enumerate(sources, 2))}, "digest")
    with no_reading(kafka, denied):
        found = list(_originals(Cluster(kafka), seeds, [*names, others]))
    with no_reading(kafka, shared):
        (of_a_share_group,) = _originals(Cluster(kafka), seeds, [shared])
    assert (of_a_share_group.ok, of_a_share_group.warns) == (True, True)
    assert [(one.what.removeprefix("original topic "), one.ok, one.warns) for one in found] == [
        (compacted, True, True),
        (denied, False, False),
        (short, True, False),
    ]
    assert "1.5 h" in found[-1].found


def test_a_broker_that_is_gone_leaves_all_of_it_due() -> None:
    away = PublisherSettings(
        kafka={"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, error_kinds=ERROR_KINDS, metadata_timeout_ms=1_000
    )
    results = send([row(0, "t", "source", 0)], away)
    assert outcomes(results) == {}
    assert results
