"""A consumer whose processing fails now and then, and that leaves the retrying to redrive.

It depends on confluent-kafka and nothing else; ``report_failure`` is all that an application has to take over. What the
two sides agree on:

- A record that could not be processed goes to the report topic as it is, with headers that say what happened. Then it
  is committed: the consumer goes on at once, and nobody waits behind a record that fails.
- redrive sends the record again when it is due, to the retry topic of this topic and group. So the consumer reads both.
- A record may come more than once: after a crash here, or there. Hence processing is idempotent, by the message's id:
  the same for the record and for all its retries.

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
    """Charges one order: ``{"order": 17, "amount": 120, "fails": 2}``, where the last says how long the trouble lasts.

    Raises TimeoutError in the first ``fails`` attempts (``"always"``: in every one), which another attempt may cure;
    and what a bug raises (KeyError for an order without an amount, ValueError for an amount that is no number), which
    no attempt will.
    """
    order = json.loads(value or b"{}")
    fails = order.get("fails", 0)
    if fails == "always" or attempt <= fails:
        raise TimeoutError(f"the payment service did not answer within 2 s (attempt {attempt})")
    int(order["amount"])


# ---------- what redrive needs to know: copy this


def report_failure(producer: Producer, report_topic: str, group: str, record: Message, error: Exception) -> None:
    """Hands the record over to redrive: when this returns, it is safe to commit. Raises KafkaException if it is not."""
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
    # All headers as they came, ours after them: by the ones of an earlier retry redrive knows which message this is.
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
    """The same for a record and all its retries: ``billing:orders/0/17``."""
    carried = header(record, "redrive-message-id")
    return carried or f"{group}:{record.topic()}/{record.partition()}/{record.offset()}"


def header(record: Message, name: str) -> str | None:
    """The last header of that name as text; None if there is none, or none that can be read."""
    headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
    value = next((value for key, value in reversed(headers) if key == name), None)
    return None if value is None else value.decode(errors="replace")


# ---------- what it did


@dataclass(frozen=True)
class Outcome:
    """What became of one record: ``failed`` was reported, ``skipped`` had been processed before."""

    message_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: Literal["processed", "failed", "skipped"]
    error: str | None
    at_ms: int


class Done:
    """The ids of the messages that were processed: where a real application has a table with a unique key.

    With a file, one JSON line for each outcome, and a restart knows what was processed before it.
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
    """Where records come from and where failures go. ``retries`` is what redrive's route for the other two names."""

    orders: str = "orders"
    retries: str = "orders-billing-retry"
    reports: str = "redrive.failures"
    group: str = "billing"


def run(stop: threading.Event, kafka: Mapping[str, str], done: Done, topics: Topics | None = None) -> None:
    """Consumes until ``stop`` is set. ``kafka``: properties for both clients, ``bootstrap.servers`` at least.

    Raises KafkaException when a failure can't be reported: the record is then not committed, and comes again.
    """
    topics = topics or Topics()
    producer = Producer(
        {
            **kafka,
            "enable.idempotence": True,
            # A record of the largest size has to fit with the headers of the report. The topic must allow it as well.
            "message.max.bytes": 2_000_000,
        },
        logger=log,
    )
    consumer = Consumer(
        {
            **kafka,
            "group.id": topics.group,
            "auto.offset.reset": "earliest",
            # What is done is stored, and committed in the background: after a crash, up to a second of it comes again.
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 1000,
            # how soon a retry topic is noticed that is created later
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
    """One record, to its end: processed, reported, or known already."""
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
    parser = argparse.ArgumentParser(description="Processes orders, badly, and reports what failed to redrive.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka brokers")
    parser.add_argument("--orders", default=Topics.orders, help="the topic of the orders (default: %(default)s)")
    parser.add_argument("--retries", default=Topics.retries, help="the topic of the retries (default: %(default)s)")
    parser.add_argument("--reports", default=Topics.reports, help="the topic of the reports (default: %(default)s)")
    parser.add_argument("--group", default=Topics.group, help="the consumer group (default: %(default)s)")
    parser.add_argument("--done", type=Path, help="a file for what was done, read again at a restart")
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
