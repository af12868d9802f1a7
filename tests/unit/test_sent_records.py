"""A read of sent records ends, whatever the client says meanwhile; tests/loop/test_sent_records.py has what is found on a broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from orchestration.kafka.sent_records import find_sent


class Complaining:
    """A consumer that gets no record, and an error about a broker each time it is asked."""

    def consume(self, *_: Any, **__: Any) -> list[Any]:
        return [self]

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._TRANSPORT, "connection refused")

    def topic(self) -> None:
        return None

    partition = offset = topic

    def assign(self, _: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Foreign:
    """A record whose headers the client can't read, in a partition that ends behind it."""

    def consume(self, *_: Any, **__: Any) -> list[Any]:
        return [self]

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "retries"

    def partition(self) -> int:
        return 0

    offset = partition

    def headers(self) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    def assign(self, _: Any) -> None:
        pass

    pause = assign

    def close(self) -> None:
        pass


def test_a_record_with_a_header_that_the_client_cannot_read_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.kafka.clients.reader", lambda *_, **__: Foreign())
    ranges = pa.RecordBatch.from_pylist([{"topic": "retries", "partition": 0, "begin": 0, "end": 1}])
    assert list(find_sent([ranges], {}, "redrive")) == []


def test_errors_about_brokers_do_not_prolong_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.kafka.clients.reader", lambda *_, **__: Complaining())
    ranges = pa.RecordBatch.from_pylist([{"topic": "retries", "partition": 0, "begin": 0, "end": 2}])
    (row,) = [row for batch in find_sent([ranges], {}, "redrive", patience=0.05) for row in batch.to_pylist()]
    assert (row["topic"], row["partition"], row["error_code"]) == ("retries", 0, KafkaError._TIMED_OUT)
