"""The publisher where only a real broker will do: transactions on offsets, fencing, size limits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from publisher import PublisherSettings, SupersededError, epoch_ms, generation, refuse_superseded, renew_charge, sending, take_charge
from publisher.contract import SUPERSEDED_CODE
from publisher.fitting import exact_size
from publisher.handover import hand_over
from publisher.session import Session
from tests.unit.publisher_kit.rows import outcomes, plain, publish_records, ready, send, stops
from tests.unit.publisher_kit.tables import ERROR_KINDS

Create = Callable[..., str]


@pytest.fixture
def settings(kafka: dict[str, str], topic_prefix: str) -> Callable[..., PublisherSettings]:
    """``settings(7, "topic")``: those of generation 7 that keeps its number beside the topic. Each test is an instance of its own."""

    def made(number: int, *fence_topics: str, **changes: Any) -> PublisherSettings:
        own = {"log_level": "0", **kafka, **changes.pop("kafka", {})}
        return PublisherSettings(
            kafka=own, error_kinds=ERROR_KINDS, instance=topic_prefix, generation=number, fence_topics=fence_topics, **changes
        )

    return made


def written(settings: PublisherSettings, *topics: str) -> list[str]:
    """What lies beside partition 0 of the topics."""
    group = {"group.id": settings.fence_group, "isolation.level": "read_committed"}
    consumer = Consumer({**settings.kafka, **group})
    found = consumer.committed([TopicPartition(topic, 0) for topic in topics], 30)
    consumer.close()
    return [where.metadata or "" for where in found]


def ends(settings: PublisherSettings, topic: str) -> int:
    """How many records, commit markers included, lie in partition 0."""
    consumer = Consumer({**settings.kafka, "group.id": "reader"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return high


def test_a_newer_loop_takes_over_and_the_older_sends_nothing_more(create_topic: Create, settings: Callable[..., PublisherSettings]) -> None:
    source, other, topic = create_topic("source"), create_topic("other"), create_topic("t")
    older, newer = settings(7, source), settings(8, source, other)
    assert take_charge(older, [source], slots=1) is True
    assert written(older, source) == ["generation 7"]
    assert outcomes(send([{"topic": topic}], older)) == {"d0": "delivered"}

    assert take_charge(newer, ["missing", other], slots=1) is True

    assert written(older, source, other) == ["generation 8"] * 2
    before = ends(older, topic)
    results = send([{"topic": topic}], older)
    assert (outcomes(results), stops(results)) == ({}, [(None, SUPERSEDED_CODE, "fenced")])
    assert ends(older, topic) == before
    with pytest.raises(SupersededError) as raised:
        take_charge(older, [source], slots=1)
    assert raised.value.by == 8
    assert outcomes(send([{"topic": topic}], newer)) == {"d0": "delivered"}
    # the loop in charge may take charge again
    assert take_charge(newer, [source, other], slots=1) is True


def test_a_number_that_kafka_has_forgotten_is_written_again(create_topic: Create, settings: Callable[..., PublisherSettings]) -> None:
    source = create_topic("source")
    newer = settings(8, source)
    take_charge(newer, [source], slots=1)
    admin = AdminClient({"bootstrap.servers": newer.kafka["bootstrap.servers"]})
    admin.delete_consumer_groups([newer.fence_group])[newer.fence_group].result(20)
    assert written(newer, source) == [""]
    renew_charge(newer)
    assert written(newer, source) == ["generation 8"]


def test_a_takeover_between_two_transactions_ends_the_older_task(create_topic: Create, settings: Callable[..., PublisherSettings]) -> None:
    source, topic = create_topic("source"), create_topic("t")
    older, newer = settings(7, source, max_rows=10), settings(8, source)
    take_charge(older, [source], slots=1)
    rows = ready({"topic": topic} for _ in range(20))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows.slice(0, 10)
        # slot 3, which the newer loop itself does not have
        take_charge(newer, [source], slots=4)
        yield rows.slice(10)

    results = [row for batch in publish_records(batches(), older, 3, epoch_ms) for row in plain(batch)]

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(10)}
    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]


def test_a_loop_that_froze_before_writing_its_number_does_not_overwrite_a_higher_one(
    create_topic: Create, settings: Callable[..., PublisherSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = create_topic("source")
    older, newer = settings(7, source), settings(8, source)
    group = generation._group

    def frozen(*arguments: Any) -> Any:
        """The older loop has read that it is the highest, and sleeps while the newer one takes charge."""
        monkeypatch.setattr(generation, "_group", group)
        take_charge(newer, [source], slots=1)
        return group(*arguments)

    monkeypatch.setattr(generation, "_group", frozen)

    with pytest.raises(SupersededError, match="generation 8 has taken over from generation 7"):
        take_charge(older, [source], slots=1)

    assert written(older, source) == ["generation 8"]


def test_a_transaction_that_is_open_in_any_slot_ever_used_is_ended(
    create_topic: Create, settings: Callable[..., PublisherSettings]
) -> None:
    source, topic = create_topic("source"), create_topic("t")
    older, newer = settings(7, source), settings(8, source)
    with Session(older, 5, refuse_superseded) as session:
        producer = session.producer(1_000_000, topic)
        producer.begin_transaction()
        producer.produce(topic, b"too late")
        producer.flush()

        take_charge(newer, [source], slots=6)

        with pytest.raises(SupersededError):
            # if nothing is lost, None is raised, which fails
            raise session.lost(session.repeated(producer.commit_transaction))  # type: ignore[arg-type]


def test_deleting_one_topic_does_not_lose_the_number(
    create_topic: Create, settings: Callable[..., PublisherSettings], kafka: dict[str, str], topic_prefix: str
) -> None:
    kept, lost = create_topic("kept"), f"{topic_prefix}lost"
    admin = AdminClient({**kafka})
    admin.create_topics([NewTopic(lost, 1, 1)])[lost].result()
    older, newer = settings(7, lost, kept), settings(8, lost, kept)
    take_charge(newer, [lost, kept], slots=1)

    admin.delete_topics([lost])[lost].result()

    deadline = time.monotonic() + 30
    while generation.generation_in_charge(older, [lost]) is not None:
        assert time.monotonic() < deadline, "the deleted topic still has its offset"
        time.sleep(0.1)
    assert stops(send([{"topic": kept}], older)) == [(None, SUPERSEDED_CODE, "fenced")]


@pytest.mark.parametrize("transactions", [True, False])
def test_a_record_that_the_broker_names_fails_alone(
    create_topic: Create, settings: Callable[..., PublisherSettings], transactions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # compaction needs keys: the broker refuses the batch, and says for which records
    topic = create_topic("compacted", **{"cleanup.policy": "compact"})
    loads: list[int] = []

    def noted(producer: Any, rows: pa.RecordBatch, *more: Any) -> Any:
        loads.append(rows.num_rows)
        return hand_over(producer, rows, *more)

    if not transactions:
        monkeypatch.setattr(sending, "hand_over", noted)
    rows = [{"topic": topic, "key": None if n in (3, 57) else b"k"} for n in range(100)]

    results = send(rows, settings(7, transactions=transactions, kafka={"linger.ms": "200"}))

    assert outcomes(results) == {f"d{n}": "failed" if n in (3, 57) else "delivered" for n in range(100)}
    assert {row["error_code"] for row in results if row["outcome"] == "failed"} == {KafkaError.INVALID_RECORD}
    # the two that were named apart, then what was refused with them
    assert loads == ([] if transactions else [100, 1, 1, 98])


def test_without_transactions_a_newer_loop_takes_over_before_the_next_load(
    create_topic: Create, settings: Callable[..., PublisherSettings]
) -> None:
    source, topic = create_topic("source"), create_topic("t")
    older, newer = (settings(number, source, transactions=False, max_rows=10) for number in (7, 8))
    assert take_charge(older, [source], slots=1) is True
    rows = ready({"topic": topic} for _ in range(20))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows.slice(0, 10)
        take_charge(newer, [source], slots=1)
        yield rows.slice(10)

    results = [row for batch in publish_records(batches(), older, 0, epoch_ms) for row in plain(batch)]

    assert outcomes(results) == {f"d{n}": "delivered" for n in range(10)}
    assert stops(results) == [(None, SUPERSEDED_CODE, "fenced")]
    assert ends(older, topic) == 10
    with pytest.raises(SupersededError):
        take_charge(older, [source], slots=1)


def test_a_dead_letter_fits_to_the_byte_with_and_without_its_payload(
    create_topic: Create, settings: Callable[..., PublisherSettings]
) -> None:
    headers = [("own", b"o" * 30), ("dlq-reason", b"r" * 300), ("redrive-message-id", b"m"), ("redrive-original-topic", b"orders")]
    lighter = [("own", b"o" * 30), ("redrive-message-id", b"m"), ("redrive-original-topic", b"orders")]
    bare = [("redrive-message-id", b"m"), ("redrive-original-topic", b"orders"), ("redrive-payload", b"omitted")]
    variants = [(b"key", b"v" * 900, headers), (b"key", b"v" * 900, lighter), (b"key", None, bare), (None, None, bare)]
    topics = [create_topic(f"t{n}", **{"max.message.bytes": str(exact_size(*variant))}) for n, variant in enumerate(variants)]
    row = {"kind": "dead_letter", "key": b"key", "value": b"v" * 900, "headers": headers, "own_headers": 1, "reason_headers": 1}

    results = send([{**row, "topic": topic} for topic in topics], settings(7))

    assert [(row["outcome"], row["omitted"]) for row in results] == [
        ("delivered", omitted) for omitted in (None, "headers", "payload", "payload")
    ]
    # nor is the size that is computed too large: the brokers refuse a record of this size where a byte less is allowed
    problems: list[KafkaError | None] = []
    less = create_topic("less", **{"max.message.bytes": str(exact_size(b"key", b"v" * 900, headers) - 1)})
    producer = Producer({**settings(7).kafka})
    own: Any = headers
    producer.produce(less, b"v" * 900, b"key", headers=own, on_delivery=lambda problem, _: problems.append(problem))
    producer.flush(30)
    assert [problem and problem.code() for problem in problems] == [KafkaError.MSG_SIZE_TOO_LARGE]
    # With compression nothing is known beforehand: the brokers refuse, and less is sent each time.
    value = random.Random(1).randbytes(3_000)
    (result,) = send([{**row, "topic": topics[3], "value": value}], settings(7, kafka={"compression.type": "zstd"}))
    assert (result["outcome"], result["omitted"]) == ("delivered", "payload")
