"""Records as other systems write them when processing failed, byte for byte, by an encoder of their own, and what they say.

Longer than other modules: a table of cases.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from orchestration.rules.vocabulary import ANY_DIALECT, DIALECTS
from tests.dbt.harness import Headers, Report

# of today's size: six bytes in shortest form
WRITTEN = 1_772_366_000_123
DUE = 1_772_368_000_456
TOPIC = "told.orders"

# a dialect of the seeds directory
ADDED: list[dict[str, object]] = [
    {
        "dialect": "ours",
        "field": field,
        "header": header,
        "occurrence": occurrence,
        "encoding": encoding,
        "path": path,
        "preference": preference,
    }
    for field, header, occurrence, encoding, path, preference in (
        ("owns", "our-*", "", "", "", ""),
        ("recognised_by", "our-topic our-error", "", "", "", ""),
        ("named_topic", "our-topic", "", "", "", ""),
        ("named_partition", "our-partition", "", "int32", "", ""),
        ("named_offset", "our-offset", "", "int64", "", ""),
        ("origin_topic", "our-topic", "first", "", "", ""),
        ("origin_partition", "our-partition", "first", "int32", "", ""),
        ("origin_offset", "our-offset", "first", "int64", "", ""),
        ("error_class", "our-error", "", "", "$.cause.class", "1"),
        ("error_class", "our-error", "", "", "$.class", "2"),
        ("attempts", "our-error", "", "", "$.tries", ""),
    )
]

# what sources do with the records of a dialect, by what their names begin with
KINDS: dict[str, dict[str, str]] = {"in": {}, "trusted": {"trusts_counts": "true"}, "dead": {"adopt": "dead"}}

SOURCES: list[dict[str, str]] = [
    *(
        {"source": f"{kind}-{dialect}", "topic": f"{kind}-{dialect}-topic", "dialect": dialect, "speaks_for": "^told[.]", **more}
        for dialect in (*DIALECTS, "ours", ANY_DIALECT)
        for kind, more in KINDS.items()
    ),
]


def b4(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def b8(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def shortest(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def dec(number: int) -> bytes:
    return str(number).encode()


OWN: Headers = (("trace", b"\x00\xff"), ("original", b"mine"))


@dataclass(frozen=True)
class Told:
    """A record of a dialect: what it says, by the columns of stg_reports. Columns that are not named say nothing.

    kept: the headers that are the message's own, beside OWN. inside: more of them, which are only in a
    JSON value. ambiguous: other dialects have headers of these names.
    """

    name: str
    dialect: str
    headers: Headers
    says: dict[str, Any]
    key: bytes | None = b"key"
    is_recognised: bool = True
    kept: Headers = field(default=())
    inside: Headers = field(default=())

    def report(self, kind: str = "in", offset: int | None = None) -> Report:
        return Report((*OWN, *self.kept, *self.headers), self.key, b"value", source=f"{kind}-{self.dialect}")


def at(topic: str | None = TOPIC, partition: int | None = 3, offset: int | None = 2**40 + 17) -> dict[str, Any]:
    """One place, of the record that failed and of the original."""
    return {
        f"{hop}_{name}": value
        for hop in ("named", "origin")
        for name, value in (("topic", topic), ("partition", partition), ("offset", offset))
    }


def hops(first: tuple[str, int, int], last: tuple[str, int, int]) -> dict[str, Any]:
    names = ("topic", "partition", "offset")
    return {f"{hop}_{name}": value for hop, place in (("origin", first), ("named", last)) for name, value in zip(names, place, strict=True)}


def _spring_hop(topic: str, partition: int, offset: int, prefix: str, millis: int) -> Headers:
    return (
        (f"{prefix}original-topic", topic.encode()),
        (f"{prefix}original-partition", b4(partition)),
        (f"{prefix}original-offset", b8(offset)),
        (f"{prefix}original-timestamp", b8(millis)),
        (f"{prefix}original-timestamp-type", b"CreateTime"),
    )


WRAPPER = b"org.springframework.kafka.listener.ListenerExecutionFailedException"

SPRING_DEATH: Headers = (
    ("kafka_exception-fqcn", WRAPPER),
    ("kafka_exception-cause-fqcn", b"java.net.ConnectException"),
    ("kafka_exception-message", b"refused"),
    ("kafka_exception-stacktrace", b"at X"),
)


def spring_retry(attempts: bytes, due: int = DUE) -> Headers:
    """A record of a retry topic: after two hops, with the headers of both."""
    return (
        *_spring_hop(TOPIC, 3, 17, "kafka_", WRITTEN),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("retry_topic-attempts", b4(2)),
        ("retry_topic-backoff-timestamp", shortest(DUE - 5_000)),
        ("retry_topic-original-timestamp", shortest(WRITTEN)),
        *_spring_hop(f"{TOPIC}-retry-0", 1, 5, "kafka_", WRITTEN + 1_000),
        *SPRING_DEATH,
        ("retry_topic-attempts", attempts),
        ("retry_topic-backoff-timestamp", shortest(due)),
    )


def decimal_place(prefix: str, separator: str = "-", topic: str = TOPIC, partition: int = 3, offset: int = 2**40 + 17) -> Headers:
    return (
        (f"{prefix}{separator}topic", topic.encode()),
        (f"{prefix}{separator}partition", dec(partition)),
        (f"{prefix}{separator}offset", dec(offset)),
    )


TOLD: list[Told] = [
    Told(
        "redrive",
        "redrive",
        (
            *decimal_place("redrive-original"),
            ("redrive-original-timestamp", dec(WRITTEN)),
            ("redrive-consumer-group", b"billing"),
            ("redrive-error-class", b"KeyError"),
            ("redrive-error-message", b"boo"),
        ),
        at() | {"origin_timestamp": WRITTEN, "consumer_group": "billing", "error_class": "KeyError", "error_message": "boo"},
    ),
    Told(
        "spring after two hops",
        "spring",
        (
            *_spring_hop(TOPIC, 3, 17, "kafka_dlt-", WRITTEN),
            *_spring_hop(f"{TOPIC}-again", 1, 256, "kafka_dlt-", WRITTEN + 1_000),
            ("kafka_dlt-original-consumer-group", b"billing"),
            ("kafka_dlt-exception-fqcn", WRAPPER),
            ("kafka_dlt-exception-cause-fqcn", b"java.net.ConnectException"),
            ("kafka_dlt-exception-message", b"refused"),
        ),
        hops((TOPIC, 3, 17), (f"{TOPIC}-again", 1, 256))
        | {
            "origin_timestamp": WRITTEN,
            "consumer_group": "billing",
            "error_class": "java.net.ConnectException",
            "error_message": "refused",
        },
    ),
    Told(
        "spring without a timestamp",
        "spring",
        (*_spring_hop(TOPIC, 3, 17, "kafka_dlt-", -1), ("kafka_dlt-exception-fqcn", WRAPPER)),
        at(offset=17) | {"error_class": WRAPPER.decode()},
    ),
    Told(
        "a retry topic of spring",
        "spring-retry",
        spring_retry(b4(3)),
        hops((TOPIC, 3, 17), (f"{TOPIC}-retry-0", 1, 5))
        | {
            "origin_timestamp": WRITTEN,
            "consumer_group": "billing",
            "attempts": 2,
            "due": DUE,
            "error_class": "java.net.ConnectException",
            "error_message": "refused",
        },
    ),
    Told(
        "an older spring, attempts in one byte",
        "spring-retry",
        spring_retry(b"\x04"),
        hops((TOPIC, 3, 17), (f"{TOPIC}-retry-0", 1, 5))
        | {
            "origin_timestamp": WRITTEN,
            "consumer_group": "billing",
            "attempts": 3,
            "due": DUE,
            "error_class": "java.net.ConnectException",
            "error_message": "refused",
        },
    ),
    Told(
        "spring's binder",
        "spring-cloud-stream",
        (
            *_spring_hop(TOPIC, 3, 17, "x-", WRITTEN),
            ("x-exception-fqcn", b"java.io.IOException"),
            ("x-exception-message", b"gone"),
            ("x-exception-stacktrace", b"at X"),
        ),
        at(offset=17) | {"origin_timestamp": WRITTEN, "error_class": "java.io.IOException", "error_message": "gone"},
        is_recognised=False,
    ),
    Told(
        "the same names with decimal text",
        "x-original-text",
        (*decimal_place("x-original"), ("x-original-timestamp", dec(WRITTEN)), ("x-exception-fqcn", b"ValueError")),
        at() | {"origin_timestamp": WRITTEN, "error_class": "ValueError"},
        is_recognised=False,
    ),
    Told(
        "uforwarder, its key unpacked",
        "uforwarder",
        (*decimal_place("uforwarder", "-"), ("uforwarder-timestamp", dec(WRITTEN)), ("uforwarder-retry-count", b"3")),
        at() | {"origin_timestamp": WRITTEN, "attempts": 3},
    ),
    Told(
        "connect, on its second pass",
        "connect",
        (
            *decimal_place("__connect.errors", "."),
            ("__connect.errors.connector.name", b"sink"),
            ("__connect.errors.task.id", b"0"),
            ("__connect.errors.stage", b"VALUE_CONVERTER"),
            ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
            ("__connect.errors.exception.message", None),
            *decimal_place("__connect.errors", ".", f"{TOPIC}.again", 0, 9),
            ("__connect.errors.stage", b"TASK_PUT"),
        ),
        hops((TOPIC, 3, 2**40 + 17), (f"{TOPIC}.again", 0, 9))
        | {"consumer_group": "sink", "stage": "TASK_PUT", "error_class": "org.apache.kafka.connect.errors.DataException"},
    ),
    Told(
        "streams",
        "streams",
        (
            ("__streams.errors.exception", b"org.apache.kafka.streams.errors.StreamsException"),
            ("__streams.errors.message", b"boo"),
            ("__streams.errors.stacktrace", b"at X"),
            *decimal_place("__streams.errors", "."),
        ),
        at() | {"error_class": "org.apache.kafka.streams.errors.StreamsException", "error_message": "boo"},
    ),
    Told(
        "a share group, without a copy",
        "share-group",
        (
            *decimal_place("__dlq.errors", "."),
            ("__dlq.errors.group", b"billing"),
            ("__dlq.errors.delivery.count", b"5"),
            ("__dlq.errors.message", b"too often"),
        ),
        at() | {"consumer_group": "billing", "attempts": 5, "error_message": "too often"},
        key=None,
    ),
    Told(
        "smallrye, dead after a dead letter: the newest headers are in front",
        "smallrye",
        (
            ("dead-letter-exception-class-name", b"java.util.concurrent.CompletionException"),
            ("dead-letter-cause-class-name", b"java.io.IOException"),
            ("dead-letter-reason", b"java.io.IOException: gone"),
            ("dead-letter-cause", b"gone"),
            *decimal_place("dead-letter", "-", f"{TOPIC}-again", 0, 9),
            ("dead-letter-exception-class-name", b"Older"),
            *decimal_place("dead-letter"),
        ),
        hops((TOPIC, 3, 2**40 + 17), (f"{TOPIC}-again", 0, 9)) | {"error_class": "java.io.IOException", "error_message": "gone"},
    ),
    Told(
        "smallrye, after delayed retries",
        "smallrye",
        (
            ("delayed-retry-count", b"2"),
            ("delayed-retry-original-timestamp", dec(WRITTEN)),
            ("delayed-retry-first-processing-timestamp", dec(WRITTEN + 7)),
            ("delayed-retry-exception-class-name", b"java.io.IOException"),
            ("delayed-retry-reason", b"gone"),
            *decimal_place("delayed-retry"),
        ),
        at() | {"origin_timestamp": WRITTEN, "attempts": 2, "error_class": "java.io.IOException", "error_message": "gone"},
    ),
    *(
        Told(
            f"karafka, {generation}",
            "karafka",
            (
                *decimal_place(prefix, separator),
                (f"{prefix}{separator}consumer{separator}group", b"billing"),
                (f"{prefix}{separator}attempts", b"3"),
            ),
            at() | {"consumer_group": "billing", "attempts": 3},
            kept=(("source_system", b"erp"),),
        )
        for generation, prefix, separator in (("since 2.5", "source", "_"), ("before", "original", "_"), ("early 2.0", "original", "-"))
    ),
    Told(
        "eventferry, whose first topic is empty",
        "eventferry",
        (
            ("original-topic", TOPIC.encode()),
            ("dlq-original-topic", b""),
            ("dlq-reason", b"boo"),
            ("dlq-error-class", b"fatal"),
            ("dlq-failed-at", b"2026-03-01T11:59:58.250Z"),
            ("dlq-attempts", b"5"),
            ("dlq-original-message-id", b"7"),
        ),
        at(partition=None, offset=None) | {"attempts": 5, "error_class": "fatal", "error_message": "boo", "stated_at": 1_772_366_398_250},
    ),
    Told(
        "a bank",
        "safi",
        (
            (
                "x-dlq-metadata",
                json.dumps(
                    {
                        "original_headers": [
                            {"key": "a", "value": "1"},
                            {"key": "trace", "value": "what the record itself carries counts"},
                            {"key": "a", "value": None},
                            {"value": "without a name"},
                            {"key": "bytes", "value": "AP8=", "encoding": "base64"},
                            {"key": "broken", "value": "?", "encoding": "base64"},
                        ],
                        "original_topic": TOPIC,
                        "original_consumer_group": "billing",
                        "original_timestamp": "2026-03-01T11:53:20.123Z",
                        "error_info": "KeyError: bö",
                    }
                ).encode(),
            ),
        ),
        at(partition=None, offset=None) | {"origin_timestamp": WRITTEN, "consumer_group": "billing", "error_message": "KeyError: bö"},
        inside=(("a", b"1"), ("a", None), ("bytes", b"\x00\xff"), ("broken", None)),
    ),
    Told(
        "topics of fixed delays",
        "delay-topics",
        (("X_DELAY_ROUTE", f"delay_5, delay_1, {TOPIC}".encode()), ("X_DELAY_COUNTER", b"2"), ("X_DELAY_REASON", b"later")),
        at(partition=None, offset=None) | {"attempts": 2, "error_message": "later"},
    ),
    Told(
        "of the seeds directory",
        "ours",
        (
            ("our-topic", TOPIC.encode()),
            ("our-partition", b4(3)),
            ("our-offset", b8(17)),
            ("our-topic", f"{TOPIC}-later".encode()),
            ("our-partition", b4(1)),
            ("our-offset", b8(256)),
            ("our-error", b'{"class": "Outer", "cause": {"class": "Inner"}, "tries": 4}'),
        ),
        hops((TOPIC, 3, 17), (f"{TOPIC}-later", 1, 256)) | {"error_class": "Inner", "attempts": 4},
    ),
    Told(
        "of the seeds directory, without a cause",
        "ours",
        (
            ("our-topic", TOPIC.encode()),
            ("our-partition", b4(3)),
            ("our-offset", b8(17)),
            ("our-error", b'{"class": "Outer"}'),
        ),
        at(offset=17) | {"error_class": "Outer"},
    ),
]

COLUMNS = (
    *("named_topic", "named_partition", "named_offset", "origin_topic", "origin_partition", "origin_offset", "origin_timestamp"),
    *("consumer_group", "stated_at", "attempts", "due", "stage", "error_class", "error_message"),
)
