"""A consumer whose processing sometimes fails, and that leaves retries to redrive.

It uses the package ``reporter``, which depends on confluent-kafka only. How the two sides work together:

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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from confluent_kafka import Message

import reporter
from reporter import Report, ReportingConsumer, header, message_id

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


# ---------- outcomes


Said = Literal["processed", "failed", "skipped", "put off"]
"""``failed``: and reported. ``skipped``: processed before. ``put off``: not tried, as an earlier one of its sequence has failed."""


@dataclass(frozen=True)
class Outcome:
    """The outcome for one record."""

    message_id: str
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: Said
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
    """The topics and the group. ``retries`` must be the retry topic that redrive's route has for ``orders`` and ``group``.

    ``sequences``: the topic that says which sequences are held, if the route keeps their order.
    """

    orders: str = "orders"
    retries: str = "orders-billing-retry"
    reports: str = "redrive.failures"
    group: str = "billing"
    sequences: str | None = None


def run(stop: threading.Event, kafka: Mapping[str, str], done: Done, topics: Topics | None = None) -> None:
    """Consumes until ``stop`` is set. ``kafka``: properties for all clients, ``bootstrap.servers`` at least.

    Raises KafkaException if a failure can't be reported. The record is then not committed, and is read again after a restart.
    """
    topics = topics or Topics()

    def handle(record: Message) -> None:
        if message_id(topics.group, record) in done:
            done.add(_outcome(topics, record, "skipped"))
            return
        process(record.value(), _attempt(record))
        done.add(_outcome(topics, record, "processed"))

    def after_report(report: Report, _: object) -> None:
        said: Literal["put off", "failed"] = "put off" if report.is_follower else "failed"
        done.add(_outcome(topics, report.record, said, type(report.error).__name__))

    where = reporter.Topics({topics.orders: topics.retries}, topics.reports, topics.sequences)
    ReportingConsumer(kafka, topics.group, where, after_report=after_report).run(handle, stop)


def _outcome(topics: Topics, record: Message, what: Said, error: str | None = None) -> Outcome:
    return Outcome(
        message_id=message_id(topics.group, record),
        topic=str(record.topic()),
        partition=int(record.partition() or 0),
        offset=int(record.offset() or 0),
        attempt=_attempt(record),
        outcome=what,
        error=error,
        at_ms=time.time_ns() // 1_000_000,
    )


def _attempt(record: Message) -> int:
    """The number of the attempt: redrive writes it to each retry."""
    stated = header(record, "redrive-attempt")
    return int(stated) if stated and stated.isdecimal() else 1


def main() -> None:
    """Consumes until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Processes orders, some of which fail, and reports the failures to redrive.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka brokers")
    parser.add_argument("--orders", default=Topics.orders, help="the topic of the orders (default: %(default)s)")
    parser.add_argument("--retries", default=Topics.retries, help="the topic of the retries (default: %(default)s)")
    parser.add_argument("--reports", default=Topics.reports, help="the topic of the reports (default: %(default)s)")
    parser.add_argument("--group", default=Topics.group, help="the consumer group (default: %(default)s)")
    parser.add_argument("--sequences", help="the topic of sequences, if their order is kept")
    parser.add_argument("--done", type=Path, help="a file for the outcomes, which a restart reads")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    done = Done(options.done, lambda outcome: log.info("%s", outcome))
    topics = Topics(options.orders, options.retries, options.reports, options.group, options.sequences)
    run(stop, {"bootstrap.servers": options.bootstrap}, done, topics)


if __name__ == "__main__":
    main()
