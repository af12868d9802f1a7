"""Reports of records that could not be processed, or were not tried: the record as it came, with headers that say why."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from confluent_kafka import KafkaException, Message, Producer

FOLLOWS: Final = "follows"
"""The kind of error of a record that was not tried, as an earlier one of its sequence had failed."""

_MOST_MESSAGE, _MOST_STACK = 1_000, 8_000

# How many calls of each error are kept of a stack trace that is too long: the first of these numbers with which it is short enough.
_MOST_CALLS = (16, 8, 4, 2, 1)


class PreviousMessageWasRecovered(Exception):  # noqa: N818  # the name that other languages use for it, too
    """To be raised for a record that is to be processed after an earlier one that has failed: it is not tried, and charged no attempt."""


@dataclass(frozen=True)
class Place:
    """Where a report lies. Its text names the failure in the headers of what redrive sends."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Report:
    """What is reported. error: why the record could not be processed; PreviousMessageWasRecovered if it was not tried."""

    record: Message
    error: Exception

    @property
    def is_follower(self) -> bool:
        """Whether the record was not tried."""
        return isinstance(self.error, PreviousMessageWasRecovered)

    def headers(self, group: str) -> list[tuple[str, str | bytes | None]]:
        """The headers of the report: those of the record, as those of a retry tell redrive which delivery failed, then the new ones."""
        kind, record = type(self.error), self.record
        facts: dict[str, object] = {
            "redrive-error-class": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix("reporter.reports."),
            "redrive-error-message": str(self.error)[:_MOST_MESSAGE],
            "redrive-original-topic": record.topic(),
            "redrive-original-partition": record.partition(),
            "redrive-original-offset": record.offset(),
            "redrive-original-timestamp": record.timestamp()[1],
            "redrive-failed-at": time.time_ns() // 1_000_000,
            "redrive-consumer-group": group,
        }
        if self.is_follower:
            facts["redrive-error-kind"] = FOLLOWS
        else:
            facts["redrive-error-stack"] = stack_of(self.error)
        new = [(name, str(fact).encode(errors="replace")) for name, fact in facts.items()]
        return [*headers_of(record), *new]


def stack_of(error: Exception) -> str:
    """The stack trace. Of a long one, fewer calls of each error are kept, so that all errors are named: rules may match each of them."""
    text = "".join(traceback.format_exception(error))
    for most in _MOST_CALLS:
        if len(text) <= _MOST_STACK:
            return text
        text = "".join(traceback.format_exception(error, limit=-most))
    half = _MOST_STACK // 2
    # a line that is cut must not look like one that names an error
    return text if len(text) <= _MOST_STACK else f"{text[:half]}\n... {text[-half:]}"


@dataclass
class Reporter:
    """Writes reports, and waits until Kafka has them."""

    kafka: Mapping[str, str]
    topic: str
    group: str

    def __post_init__(self) -> None:
        # a record of the largest size must fit with the headers of its report; the report topic must allow this size, too
        properties = {"message.max.bytes": 2_000_000, **self.kafka, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(properties, logger=logging.getLogger("reporter"))

    def report(self, report: Report) -> Place:
        """Writes a report; returns where it lies. Raises KafkaException if Kafka did not take it: the record must then not be committed."""
        outcome: list[tuple[object, Message]] = []
        record = report.record
        self._producer.produce(
            self.topic,
            record.value(),
            record.key(),
            headers=report.headers(self.group),
            on_delivery=lambda refused, written: outcome.append((refused, written)),
        )
        self._producer.flush()
        if len(outcome) != 1 or outcome[0][0] is not None:
            raise KafkaException(*(refused for refused, _ in outcome))
        written = outcome[0][1]
        return Place(self.topic, int(written.partition() or 0), int(written.offset() or 0))


def headers_of(record: Message) -> list[tuple[str, str | bytes | None]]:
    """The headers of a record, in their order. Empty if the name of one is not UTF-8: the client can't read any of them then."""
    try:
        return cast("list[tuple[str, str | bytes | None]]", record.headers() or [])
    except UnicodeDecodeError:
        # whoever goes on to process it must not be held up; its report is without them
        place = f"{record.topic()}/{record.partition()}/{record.offset()}"
        logging.getLogger("reporter").warning("the headers of %s can't be read: the name of one is not UTF-8", place)
        return []


def header(record: Message, name: str) -> str | None:
    """The value of the last header of that name, as text. None if there is no such header, or its value is null."""
    value = next((value for key, value in reversed(headers_of(record)) if key == name), None)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def message_id(group: str, record: Message) -> str:
    """The id of the message, the same for a record and all its retries: ``billing:orders/0/17``."""
    return header(record, "redrive-message-id") or f"{group}:{record.topic()}/{record.partition()}/{record.offset()}"
