"""Dead letters byte for byte: failures of which much or little is known, and what each header profile writes about them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from tests.dbt.harness import Headers, Report, report

FAILED_AT = datetime(2026, 3, 1, 11, 59, 58, 250_000, tzinfo=UTC)
WRITTEN_AT = datetime(2026, 2, 28, 1, 2, 3, 4_000, tzinfo=UTC)
# the last byte that there is room for is in the middle of a letter
STACK = "x" + "ä" * 5_000
CUT = b"\n... cut"
CUT_STACK = STACK.encode()[: 8192 - len(CUT) - 1] + CUT

OWN: Headers = (
    ("trace", b"\x00\xff" * 40),
    ("a", b"1"),
    ("a", None),
    ("a", b""),
    ("ünï", 'ü\U0001f600"\\\n'.encode()),
)

PROFILES = ("dlq", "safi", "spring", "connect", "spring-retry", "streams", "smallrye", "karafka", "eventferry")


def failed(topic: str, offset: int = 2**40 + 3, *, own: Headers = OWN, stack: str = STACK, message: str = "bös", **how: Any) -> Report:
    """A failure that is dead at once, with headers of the message's own."""
    reported = report(topic, offset, partition=258, error="KeyError", failed_at=FAILED_AT, **how)
    said = [header for header in reported.headers or () if header[0] not in ("trace", "redrive-error-message")]
    added = [
        ("redrive-error-message", message.encode()),
        ("redrive-error-stack", stack.encode()),
        ("redrive-original-timestamp", str(round(WRITTEN_AT.timestamp() * 1000)).encode()),
    ]
    return reported.but(headers=(*own, *said, *added))


def hardly_said(topic: str) -> Report:
    """A failure of which nothing is known but where, and that it is final."""
    where = [("redrive-original-topic", topic), ("redrive-original-partition", "0"), ("redrive-original-offset", "7")]
    return Report((*((name, text.encode()) for name, text in where), ("redrive-error-kind", b"poison")))


def metadata(headers: list[dict[str, Any]], topic: str, group: str, timestamp: str, error: str) -> bytes:
    said = {
        "original_headers": headers,
        "original_topic": topic,
        "original_consumer_group": group,
        "original_timestamp": timestamp,
        "error_info": error,
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


OWN_IN_JSON: list[dict[str, Any]] = [
    {"key": "trace", "value": base64.b64encode(b"\x00\xff" * 40).decode(), "encoding": "base64"},
    {"key": "a", "value": "1"},
    {"key": "a", "value": None},
    {"key": "a", "value": ""},
    {"key": "ünï", "value": 'ü\U0001f600"\\\n'},
]

# What each profile writes about `failed`, and about `hardly_said`. TOPIC, NOW and STACK stand for what differs.
WRITTEN: dict[str, tuple[list[tuple[str, bytes | None]], list[tuple[str, bytes | None]]]] = {
    "dlq": (
        [
            ("dlq-reason", "bös".encode()),
            ("dlq-error-class", b"KeyError"),
            ("dlq-original-topic", b"TOPIC"),
            ("dlq-failed-at", b"2026-03-01T11:59:58.250Z"),
            ("dlq-attempts", b"1"),
            ("dlq-stack", b"STACK"),
            ("redrive-consumer-group", b"billing"),
        ],
        [
            ("dlq-reason", b"poison"),
            ("dlq-original-topic", b"TOPIC"),
            ("dlq-failed-at", b"NOW"),
            ("dlq-attempts", b"1"),
        ],
    ),
    "safi": (
        [("x-dlq-metadata", metadata(OWN_IN_JSON, "TOPIC", "billing", "2026-02-28T01:02:03.004Z", "KeyError: bösSTACK"))],
        [("x-dlq-metadata", metadata([], "TOPIC", "", "", "poison"))],
    ),
    "spring": (
        [
            ("kafka_dlt-exception-fqcn", b"KeyError"),
            ("kafka_dlt-exception-cause-fqcn", b"KeyError"),
            ("kafka_dlt-exception-message", "bös".encode()),
            ("kafka_dlt-exception-stacktrace", b"STACK"),
            ("kafka_dlt-original-topic", b"TOPIC"),
            ("kafka_dlt-original-partition", b"\x00\x00\x01\x02"),
            ("kafka_dlt-original-offset", b"\x00\x00\x01\x00\x00\x00\x00\x03"),
            ("kafka_dlt-original-timestamp", round(WRITTEN_AT.timestamp() * 1000).to_bytes(8, "big")),
            ("kafka_dlt-original-consumer-group", b"billing"),
        ],
        [
            ("kafka_dlt-original-topic", b"TOPIC"),
            ("kafka_dlt-original-partition", b"\x00\x00\x00\x00"),
            ("kafka_dlt-original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x07"),
            ("kafka_dlt-original-timestamp", b"\xff" * 8),
            ("kafka_dlt-original-timestamp-type", b"NoTimestampType"),
        ],
    ),
    "connect": (
        [
            ("__connect.errors.topic", b"TOPIC"),
            ("__connect.errors.partition", b"258"),
            ("__connect.errors.offset", b"1099511627779"),
            ("__connect.errors.connector.name", b"billing"),
            ("__connect.errors.stage", b"TASK_PUT"),
            ("__connect.errors.exception.class.name", b"KeyError"),
            ("__connect.errors.exception.message", "bös".encode()),
            ("__connect.errors.exception.stacktrace", b"STACK"),
        ],
        [
            ("__connect.errors.topic", b"TOPIC"),
            ("__connect.errors.partition", b"0"),
            ("__connect.errors.offset", b"7"),
            ("__connect.errors.stage", b"TASK_PUT"),
            ("__connect.errors.exception.message", None),
        ],
    ),
    "spring-retry": (
        [
            ("kafka_exception-fqcn", b"KeyError"),
            ("kafka_exception-cause-fqcn", b"KeyError"),
            ("kafka_exception-message", "bös".encode()),
            ("kafka_exception-stacktrace", b"STACK"),
            ("kafka_original-topic", b"TOPIC"),
            ("kafka_original-partition", b"\x00\x00\x01\x02"),
            ("kafka_original-offset", b"\x00\x00\x01\x00\x00\x00\x00\x03"),
            ("kafka_original-timestamp", round(WRITTEN_AT.timestamp() * 1000).to_bytes(8, "big")),
            ("kafka_dlt-original-consumer-group", b"billing"),
            ("retry_topic-attempts", b"\x00\x00\x00\x02"),
            ("retry_topic-original-timestamp", round(WRITTEN_AT.timestamp() * 1000).to_bytes(6, "big")),
        ],
        [
            ("kafka_original-topic", b"TOPIC"),
            ("kafka_original-partition", b"\x00\x00\x00\x00"),
            ("kafka_original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x07"),
            ("kafka_original-timestamp", b"\xff" * 8),
            ("kafka_original-timestamp-type", b"NoTimestampType"),
            ("retry_topic-attempts", b"\x00\x00\x00\x02"),
        ],
    ),
    "streams": (
        [
            ("__streams.errors.exception", b"KeyError"),
            ("__streams.errors.message", "bös".encode()),
            ("__streams.errors.stacktrace", b"STACK"),
            ("__streams.errors.topic", b"TOPIC"),
            ("__streams.errors.partition", b"258"),
            ("__streams.errors.offset", b"1099511627779"),
        ],
        [
            ("__streams.errors.message", None),
            ("__streams.errors.topic", b"TOPIC"),
            ("__streams.errors.partition", b"0"),
            ("__streams.errors.offset", b"7"),
        ],
    ),
    "smallrye": (
        [
            ("dead-letter-exception-class-name", b"KeyError"),
            ("dead-letter-reason", "bös".encode()),
            ("dead-letter-topic", b"TOPIC"),
            ("dead-letter-partition", b"258"),
            ("dead-letter-offset", b"1099511627779"),
        ],
        [
            ("dead-letter-reason", b"poison"),
            ("dead-letter-topic", b"TOPIC"),
            ("dead-letter-partition", b"0"),
            ("dead-letter-offset", b"7"),
        ],
    ),
    "karafka": (
        [
            ("source_topic", b"TOPIC"),
            ("source_partition", b"258"),
            ("source_offset", b"1099511627779"),
            ("source_consumer_group", b"billing"),
            ("source_attempts", b"1"),
        ],
        [
            ("source_topic", b"TOPIC"),
            ("source_partition", b"0"),
            ("source_offset", b"7"),
            ("source_attempts", b"1"),
        ],
    ),
    "eventferry": (
        [
            ("dlq-reason", "bös".encode()),
            ("dlq-error-class", b"KeyError"),
            ("dlq-original-topic", b"TOPIC"),
            ("dlq-failed-at", b"2026-03-01T11:59:58.250Z"),
            ("dlq-attempts", b"1"),
            ("dlq-stack", b"STACK"),
            ("original-topic", b"TOPIC"),
            ("dlq-original-message-id", b"billing:TOPIC/258/1099511627779"),
        ],
        [
            ("dlq-reason", b"poison"),
            ("dlq-original-topic", b"TOPIC"),
            ("dlq-failed-at", b"NOW"),
            ("dlq-attempts", b"1"),
            ("original-topic", b"TOPIC"),
            ("dlq-original-message-id", b":TOPIC/0/7"),
        ],
    ),
}


def wanted(profile: str, stack: bool, place: int, now: str) -> list[tuple[str, bytes | None]]:
    """The golden table with what differs put in, and the mark of the profile behind it."""
    trace = CUT_STACK if stack else b""
    if profile == "safi" and stack:
        # inside of JSON
        trace = (b"\n" + trace).replace(b"\n", b"\\n")
    puts = {b"TOPIC": topic_of(profile, stack).encode(), b"NOW": now.encode(), b"STACK": trace}
    made: list[tuple[str, bytes | None]] = []
    for name, value in WRITTEN[profile][place]:
        if stack or value != b"STACK":
            for word, put in puts.items():
                value = value and value.replace(word, put)
            made.append((name, value))
    return [*made, ("redrive-header-profile", profile.encode())]


def topic_of(profile: str, stack: bool) -> str:
    # without -: letter-spring-retry would be the retry topic of letter-spring
    return f"letter-{profile.replace('-', '')}{'-stack' if stack else ''}"
