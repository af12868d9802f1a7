"""A consumer whose processing sometimes fails, and that leaves retries to redrive.

It depends on confluent-kafka only. An application needs to copy nothing but ``report_failure``. How the two sides work together:

- If the consumer can't process a record, it sends the record unchanged to the report topic, with headers that describe the failure. Then it
  commits the record's offset and goes on with the next one, so a failing record blocks no other.
- redrive sends the record again when it is due, to the retry topic of this topic and group. So the consumer subscribes to both topics.
- A record may arrive more than once, after a crash of the consumer or of redrive. So processing must be idempotent: it recognizes a
  repeat by the message id, which is the same for a record and all its retries.

    python -m examples.flaky_consumer --bootstrap localhost:9092
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer

log = logging.getLogger("flaky_consumer")

# ---------- the business


def process(value: bytes | None, attempt: int) -> None:
    """Charges one order: ``{"order": 17, "amount": 120, "fails": 2}``, where ``fails`` is the number of attempts that time out.

    Raises TimeoutError in the first ``fails`` attempts (``"always"``: in every attempt): a later attempt may succeed. Raises KeyError for
    an order without an amount, and ValueError for an amount that is no number: these are bugs, and no attempt succeeds.
    """
    order = json.loads(value or b"{}")
    fails = order.get("fails", 0)
    if fails == "always" or attempt <= fails:
        raise TimeoutError(f"the payment service did not answer within 2 s (attempt {attempt})")
    int(order["amount"])


# ---------- the report to redrive: copy this


def report_failure(producer: Producer, report_topic: str, group: str, record: Message, error: Exception) -> None:
    """Reports a failed record to redrive. After it returns, commit the record. Raises KafkaException if Kafka did not accept the report."""
    kind = type(error)
    facts = {
        "redrive-error-class": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "redrive-error-message": str(error)[:1000],
        "redrive-error-stack": "".join(traceback.format_exception(error))[-8000:],
        "redrive-original-topic": record.topic(),
        "redrive-original-partition": record.partition(),
        "redrive-original-offset": record.offset(),
        "redrive-original-timestamp": record.timestamp()[1],
        "redrive-failed-at": time.time_ns() // 1_000_000,
        "redrive-consumer-group": group,
    }
    # Keep all headers of the record: those of a retry tell redrive which delivery failed. Append the new ones: the last of a name counts.
    headers = [*(record.headers() or []), *((name, str(fact).encode(errors="replace")) for name, fact in facts.items())]
    outcome: list[object] = []
    producer.produce(
        report_topic,
        record.value(),
        record.key(),
        headers=headers,
        on_delivery=lambda refused, _: outcome.append(refused),
    )
    producer.flush()
    if outcome != [None]:
        raise KafkaException(*outcome)


def message_id(group: str, record: Message) -> str:
    """The id of the message, the same for a record and all its retries: ``billing:orders/0/17``."""
    carried = header(record, "redrive-message-id")
    return carried or f"{group}:{record.topic()}/{record.partition()}/{record.offset()}"


def header(record: Message, name: str) -> str | None:
    """The value of the last header of that name, as text. None if there is no such header, or its value is null."""
    headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
    value = next((value for key, value in reversed(headers) if key == name), None)
    return None if value is None else value.decode(errors="replace")


# ---------- outcomes


@dataclass(frozen=True)
class Outcome:
    """The outcome for one record: ``processed``, ``failed`` (and reported), or ``skipped``, because it had been processed before."""

    message_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: Literal["processed", "failed", "skipped"]
    error: str | None
    at_ms: int


class Done:
    """The ids of the messages that were processed. A real application would use a table with a unique key instead.

    If there is a file, each outcome is written to it as a JSON line, and a restart reads the ids from it.
    """

    def __init__(self, file: Path | None = None, on_outcome: Callable[[Outcome], None] | None = None) -> None:
        self._file = file
        self._on_outcome = on_outcome
        self._ids: set[str] = set()
        if file is not None and file.exists():
            lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
            self._ids = {line["message_id"] for line in lines if line["outcome"] == "processed"}

    def __contains__(self, message: str) -> bool:
        return message in self._ids

    def add(self, outcome: Outcome) -> None:
        if outcome.outcome == "processed":
            self._ids.add(outcome.message_id)
        if self._file is not None:
            with self._file.open("a") as lines:
                lines.write(json.dumps(asdict(outcome)) + "\n")
        if self._on_outcome is not None:
            self._on_outcome(outcome)


# ---------- the loop


@dataclass(frozen=True)
class Topics:
    """The topics and the group. ``retries`` must be the retry topic that redrive's route has for ``orders`` and ``group``."""

    orders: str = "orders"
    retries: str = "orders-billing-retry"
    reports: str = "redrive.failures"
    group: str = "billing"


def run(stop: threading.Event, kafka: Mapping[str, str], done: Done, topics: Topics | None = None) -> None:
    """Consumes until ``stop`` is set. ``kafka``: properties for both clients, ``bootstrap.servers`` at least.

    Raises KafkaException if a failure can't be reported. The record is then not committed, and is read again after a restart.
    """
    topics = topics or Topics()
    producer = Producer(
        {
            **kafka,
            "enable.idempotence": True,
            # A record of the largest size must fit with the headers of the report. The report topic must allow this size, too.
            "message.max.bytes": 2_000_000,
        },
        logger=log,
    )
    consumer = Consumer(
        {
            **kafka,
            "group.id": topics.group,
            "auto.offset.reset": "earliest",
            # Offsets are stored when a record is handled, and committed every second: after a crash, up to a second of records comes again.
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 1000,
            # how soon the consumer notices a retry topic that is created later
            "topic.metadata.refresh.interval.ms": 5000,
        },
        logger=log,
    )
    consumer.subscribe([topics.orders, topics.retries])
    try:
        while not stop.is_set():
            record = consumer.poll(0.2)
            if record is None:
                continue
            if problem := record.error():
                if problem.fatal():
                    raise KafkaException(problem)
                log.warning("Kafka: %s", problem.str())
                continue
            handle(record, topics, producer, done)
            consumer.store_offsets(record)
    finally:
        consumer.close()


def handle(record: Message, topics: Topics, producer: Producer, done: Done) -> None:
    """Handles one record: processes it, reports its failure, or skips it because it was processed before."""
    message = message_id(topics.group, record)
    attempt = header(record, "redrive-attempt")
    number = int(attempt) if attempt and attempt.isdecimal() else 1
    outcome: Literal["processed", "failed", "skipped"] = "skipped"
    problem: str | None = None
    if message not in done:
        try:
            process(record.value(), number)
            outcome = "processed"
        except Exception as error:
            report_failure(producer, topics.reports, topics.group, record, error)
            outcome, problem = "failed", type(error).__name__
    done.add(
        Outcome(
            message_id=message,
            topic=str(record.topic()),
            partition=int(record.partition() or 0),
            offset=int(record.offset() or 0),
            attempt=number,
            outcome=outcome,
            error=problem,
            at_ms=time.time_ns() // 1_000_000,
        )
    )


def main() -> None:
    """Consumes until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Processes orders, some of which fail, and reports the failures to redrive.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka brokers")
    parser.add_argument("--orders", default=Topics.orders, help="the topic of the orders (default: %(default)s)")
    parser.add_argument("--retries", default=Topics.retries, help="the topic of the retries (default: %(default)s)")
    parser.add_argument("--reports", default=Topics.reports, help="the topic of the reports (default: %(default)s)")
    parser.add_argument("--group", default=Topics.group, help="the consumer group (default: %(default)s)")
    parser.add_argument("--done", type=Path, help="a file for the outcomes, which a restart reads")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    done = Done(options.done, lambda outcome: log.info("%s", outcome))
    topics = Topics(options.orders, options.retries, options.reports, options.group)
    run(stop, {"bootstrap.servers": options.bootstrap}, done, topics)


if __name__ == "__main__":
    main()
