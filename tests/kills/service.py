"""The service around the loops: a producer whose messages fail all the time, and a consumer that fails each retry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.loop.harness import Record, Topics
from tests.loop.processes import RETRY_TOPIC

# How often a new message fails, in seconds: one whose error is retried, and one that is fatal.
_PAUSE = 0.5
FATAL = b"fatal"


@dataclass
class Service:
    """Messages of one domain fail, from `failing` on until its end; retries are read and failed as long as `consuming` lasts."""

    kafka: dict[str, str]
    domain: str
    partitions: int
    keys: set[bytes] = field(default_factory=set)
    """Those of all messages so far; those that begin with FATAL fail with an error that is not retried."""

    @contextmanager
    def failing(self) -> Iterator[None]:
        """New messages fail, all the time."""
        with self._meanwhile(self._fail):
            yield

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Each retry is read once, and fails again."""
        with self._meanwhile(self._consume):
            yield

    @contextmanager
    def _meanwhile(self, work: Callable[[threading.Event], None]) -> Iterator[None]:
        enough = threading.Event()
        thread = threading.Thread(target=work, args=(enough,))
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def _fail(self, enough: threading.Event) -> None:
        topics = Topics(self.kafka)
        topic = f"{self.domain}.orders"
        while not enough.wait(_PAUSE):
            number = len(self.keys)
            key = b"%s-%d" % (FATAL if number % 2 else b"retried", number)
            self.keys.add(key)
            place = topics.write(topic, key, value_of(key), OWN, number % self.partitions)
            record = Record(topic, *place, int(time.time() * 1000), key, value_of(key), OWN)
            topics.report(record, error="KeyError" if number % 2 else "TimeoutError")
        topics.close()

    def _consume(self, enough: threading.Event) -> None:
        topics = Topics(self.kafka)
        consumer = Consumer({**self.kafka, "group.id": self.domain, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        retries = f"{self.domain}.{RETRY_TOPIC}"
        committed = _committed(consumer, [TopicPartition(retries, number) for number in range(self.partitions)])
        consumer.assign([TopicPartition(place.topic, place.partition, max(place.offset, 0)) for place in committed])
        while not enough.is_set():
            message = consumer.poll(0.3)
            if message is None or message.error() is not None:
                continue
            headers = tuple(message.headers() or ())
            place = (retries, int(message.partition() or 0), int(message.offset() or 0))
            topics.report(Record(*place, message.timestamp()[1], message.key(), message.value(), headers))  # type: ignore[arg-type]
            consumer.commit(message=message, asynchronous=False)
        consumer.close()
        topics.close()


def _committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    # a broker has no coordinator of a new group yet
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.committed(places, timeout=30)
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)


OWN = (("own", b"\x00\xff"), ("trace", b"1"))
"""The messages' own headers."""


def value_of(key: bytes) -> bytes:
    """The value of a message."""
    return key * 20
