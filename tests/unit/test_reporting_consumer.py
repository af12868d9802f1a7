"""The consumer of the package `reporter`, without Kafka: what it pauses, and what it does when topics of redrive's are created again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import Message, TopicPartition

from reporter import NotAlignedError, PreviousMessageWasRecovered, Report, ReportingConsumer, Topics
from reporter.holds import DECIDED
from reporter.reports import Place

TOPICS = Topics({"orders": "retries"}, reports="reports", sequences="sequences", circuit_breakers="breakers")


@dataclass
class FakeRecord:
    """As a record of Kafka's client."""

    topic_: str
    key_: str | None = "k"
    value_: str | None = None
    offset_: int = 0
    partition_: int = 0
    headers_: dict[str, str] = field(default_factory=dict)

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return None if self.key_ is None else self.key_.encode()

    def value(self) -> bytes | None:
        return None if self.value_ is None else self.value_.encode()

    def headers(self) -> list[tuple[str, bytes]]:
        return [(name, text.encode()) for name, text in self.headers_.items()]

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


@dataclass
class FakeClient:
    """A consumer that is told what to pause."""

    paused: set[str] = field(default_factory=set)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {f"{one.topic}/{one.partition}" for one in partitions}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.paused.clear()

    def consume(self, count: int, seconds: float) -> list[Message]:
        return []

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {f"{one.topic}/{one.partition}" for one in partitions}


@dataclass
class Fake:
    """A consumer with two partitions of the original topic and of its retries, and what it has reported."""

    consumer: ReportingConsumer
    client: FakeClient
    reports: list[str]

    def breaker(self, key: str, state: str | None, offset: int) -> None:
        value = None if state is None else json.dumps({"state": state})
        self.consumer._read(cast(Message, FakeRecord("breakers", key, value, offset)))

    def said(self, key: str, value: Any, offset: int) -> None:
        text = None if value is None else json.dumps(value)
        self.consumer._read(cast(Message, FakeRecord("sequences", key, text, offset)))

    def came(self, record: FakeRecord, process: Callable[[Message], None] = lambda record: None) -> None:
        self.consumer._handle(cast(Message, record), process)


@pytest.fixture
def fake() -> Fake:
    consumer = ReportingConsumer({"bootstrap.servers": "localhost:1"}, "billing", TOPICS)
    client, reports = FakeClient(), list[str]()
    consumer._consumer = cast(Any, client)
    consumer._assigned = {(topic, number) for topic in ("orders", "retries") for number in (0, 1)}

    def report(report: Report) -> Place:
        reports.append(f"{'follows' if report.is_follower else type(report.error).__name__} {report.record.offset()}")
        return Place("reports", 0, len(reports) - 1)

    consumer._reporter = cast(Any, type("FakeReporter", (), {"report": staticmethod(report)}))
    return Fake(consumer, client, reports)


def test_while_a_circuit_breaker_is_open_the_original_topic_is_paused_and_its_retries_are_not(fake: Fake) -> None:
    fake.breaker("billing:orders", "open", 0)
    assert fake.client.paused == {"orders/0", "orders/1"}
    fake.breaker("billing:orders", "closed", 1)
    assert fake.client.paused == set()
    fake.breaker("billing:orders/1", "open", 2)
    fake.breaker("audit:orders", "open", 3)
    assert fake.client.paused == {"orders/1"}
    fake.breaker("billing:orders/1", None, 4)
    assert fake.client.paused == set()


def test_what_is_not_caught_up_with_stays_paused_when_a_circuit_breaker_changes(fake: Fake) -> None:
    fake.consumer._waits_for = {"reports/0": 7}
    fake.client.pause([TopicPartition("orders", 0), TopicPartition("retries", 0)])
    fake.breaker("billing:elsewhere", "open", 0)
    fake.breaker("billing:orders/1", "open", 1)
    assert fake.client.paused >= {"orders/0", "retries/0"}


def test_what_is_assigned_while_its_circuit_breaker_is_open_is_paused(fake: Fake) -> None:
    fake.consumer.topics = Topics({"orders": "retries"}, circuit_breakers="breakers")
    fake.breaker("billing:orders/2", "open", 0)
    fake.consumer._state = cast(Any, fake.client)
    fake.consumer._on_assign(cast(Any, fake.client), [TopicPartition(topic, 2) for topic in ("orders", "retries")])
    assert fake.client.paused == {"orders/2"}


def test_circuit_breakers_of_a_topic_that_was_lost_are_forgotten(fake: Fake) -> None:
    fake.breaker("billing:orders/0", "open", 5)
    fake.breaker("billing:orders/1", "open", 0)
    assert fake.client.paused == {"orders/1"}


@pytest.mark.parametrize("key", ["billing:orders/0", "billing:elsewhere"])
def test_what_was_paused_is_resumed_if_the_new_topic_names_no_open_circuit_breaker(fake: Fake, key: str) -> None:
    fake.breaker("billing:orders/0", "open", 5)
    fake.breaker(key, "closed", 0)
    assert fake.client.paused == set()


def test_sequences_of_a_topic_that_was_lost_are_held_until_the_new_one_is_complete(fake: Fake) -> None:
    fake.said("billing:orders/0/a", {"epoch": "reports/0/5"}, 10)
    fake.said(DECIDED, {"reports/0": 6}, 11)
    fake.came(FakeRecord("orders", "a", offset_=1))
    assert fake.reports == ["follows 1"]
    # created again: by now the sequence is free, and another one is held
    fake.said("billing:orders/0/b", {"epoch": "reports/0/8"}, 0)
    fake.came(FakeRecord("orders", "a", offset_=2))
    assert fake.reports == ["follows 1", "follows 2"]
    fake.said(DECIDED, {"reports/0": 9}, 1)
    done: list[int] = []
    fake.came(FakeRecord("orders", "a", offset_=3), lambda record: done.append(int(record.offset() or 0)))
    fake.came(FakeRecord("orders", "b", offset_=4))
    assert (done, fake.reports[2:]) == ([3], ["follows 4"])


def test_what_fails_holds_its_sequence_and_no_other(fake: Fake) -> None:
    def fails(record: Message) -> None:
        raise TimeoutError

    def waits(record: Message) -> None:
        raise PreviousMessageWasRecovered

    done: list[int] = []
    fake.came(FakeRecord("orders", "a", offset_=1), fails)
    fake.came(FakeRecord("orders", "a", offset_=2))
    fake.came(FakeRecord("orders", "b", offset_=3), waits)
    fake.came(FakeRecord("orders", "c", offset_=4), lambda record: done.append(4))
    fake.came(FakeRecord("orders", None, offset_=5), lambda record: done.append(5))
    assert (fake.reports, done) == (["TimeoutError 1", "follows 2", "follows 3"], [4, 5])


def test_a_retry_belongs_to_the_sequence_that_its_headers_name(fake: Fake) -> None:
    fake.said("billing:orders/1/a", {"epoch": "reports/0/5"}, 0)
    fake.said(DECIDED, {"reports/0": 6}, 1)
    sent = {"redrive-sequence": "a", "redrive-original-topic": "orders", "redrive-original-partition": "1"}
    done: list[int] = []
    fake.came(FakeRecord("retries", "a", offset_=1, headers_={**sent, "redrive-sequence-epoch": "reports/0/4"}))
    fake.came(
        FakeRecord("retries", "a", offset_=2, headers_={**sent, "redrive-sequence-epoch": "reports/0/5"}), lambda record: done.append(2)
    )
    assert (fake.reports, done) == (["follows 1"], [2])


def test_partitions_that_are_scattered_are_refused(fake: Fake) -> None:
    fake.consumer._assigned = {("orders", 0), ("retries", 1)}
    with pytest.raises(NotAlignedError, match=r"partitions \[0\] of orders, and \[1\] of retries"):
        fake.consumer._objects_if_scattered()


def test_what_an_application_puts_off_is_not_overtaken_by_what_was_sent_along(fake: Fake) -> None:
    def waits(record: Message) -> None:
        raise PreviousMessageWasRecovered

    fake.said("billing:orders/0/a", {"epoch": "reports/0/5"}, 0)
    fake.said(DECIDED, {"reports/0": 0}, 1)
    sent = {"redrive-sequence": "a", "redrive-original-partition": "0", "redrive-sequence-epoch": "reports/0/5"}
    fake.came(FakeRecord("retries", "a", offset_=1, headers_=sent), waits)
    fake.came(FakeRecord("retries", "a", offset_=2, headers_=sent))
    assert fake.reports == ["follows 1", "follows 2"]
