"""Reports as Spring Kafka's DeadLetterPublishingRecoverer writes them, byte by byte."""

from __future__ import annotations

import pytest

from tests.loop.harness import Headers, Record, Redrive

pytestmark = pytest.mark.long


def recovered(record: Record, cause: bytes | None, timestamp: bytes = b"\x00\x00\x01\x8b\xcf\xe5\x68\x00") -> Headers:
    """The headers of a recovered record: numbers big-endian, the exception the listener's wrapper."""
    said: list[tuple[str, bytes | None]] = [
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-message", b"Listener failed"),
        (
            "kafka_dlt-exception-stacktrace",
            b"org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n\tat ...",
        ),
        ("kafka_dlt-original-topic", record.topic.encode()),
        ("kafka_dlt-original-partition", record.partition.to_bytes(4, "big", signed=True)),
        ("kafka_dlt-original-offset", record.offset.to_bytes(8, "big", signed=True)),
        ("kafka_dlt-original-timestamp", timestamp),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"billing"),
    ]
    if cause:
        said.append(("kafka_dlt-exception-cause-fqcn", cause))
    return said


@pytest.mark.slow
def test_the_cause_decides_and_a_retry_that_fails_is_recognised(redrive: Redrive) -> None:
    redrive.domain("spring")
    record = Record("spring.orders", 0, 3, 0, b"k", b"v", (("trace", b"\x01"),))
    redrive.write(
        "spring.spring-reports", record.key, record.value, [*record.headers, *recovered(record, b"java.net.SocketTimeoutException")]
    )
    bug = Record("spring.orders", 0, 4, 0, b"b", b"v", ())
    redrive.write("spring.spring-reports", bug.key, bug.value, recovered(bug, b"java.lang.NullPointerException", b"\xff" * 8))
    (retry,) = redrive.retries("spring", 1)
    assert retry.own_headers == (("trace", b"\x01"),)
    assert retry.header("redrive-original-timestamp") == "1700000000000"
    # the recoverer keeps the headers of the retry, and names the retry topic
    redrive.write("spring.spring-reports", retry.key, retry.value, [*retry.headers, *recovered(retry, None)])
    first, dead, second = redrive.decided("spring", 3)
    assert (first["error_class"], first["error_kind"], first["attempt"]) == ("java.net.SocketTimeoutException", "retriable", 1)
    assert (dead["error_class"], dead["decision"], dead["original_timestamp"]) == ("java.lang.NullPointerException", "dead_letter", None)
    # -1 stands for no timestamp: nothing is wrong with it
    assert dead["problems"] == []
    assert (second["message_id"], second["attempt"], second["decision"]) == ("billing:spring.orders/0/3", 2, "retry")
    assert second["error_class"] == "org.springframework.kafka.listener.ListenerExecutionFailedException"


def test_numbers_of_the_wrong_width_are_flagged_and_never_guessed(redrive: Redrive) -> None:
    redrive.domain("width")
    record = Record("width.orders", 0, 3, 0, b"k", b"v", ())
    headers = [(name, b"3" if name == "kafka_dlt-original-offset" else value) for name, value in recovered(record, None)]
    redrive.write("width.spring-reports", b"k", b"v", headers)
    (row,) = redrive.decided("width", 1)
    assert (row["decision"], row["reason"]) == ("orphan", "unreadable")
    assert row["problems"] == ["named_offset", "origin_offset"]
