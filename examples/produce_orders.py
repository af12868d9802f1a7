"""Writes orders to a topic. The value of an order determines whether and how flaky_consumer fails to process it.

python -m examples.produce_orders --bootstrap localhost:9092 --count 100
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer


@dataclass(frozen=True)
class Kind:
    """One kind of order: its share among all orders (weight), and the fields of its value besides the number."""

    name: str
    weight: int
    content: Mapping[str, Any] = field(default_factory=dict)


MIX: tuple[Kind, ...] = (
    Kind("fine", 6, {"amount": 120}),
    Kind("times out once", 3, {"amount": 120, "fails": 1}),
    Kind("times out three times", 1, {"amount": 120, "fails": 3}),
    Kind("always times out", 1, {"amount": 120, "fails": "always"}),
    Kind("bug: no amount", 1),
    Kind("bug: no number", 1, {"amount": "twelve"}),
)


def orders(count: int, mix: Sequence[Kind] = MIX) -> Iterator[dict[str, Any]]:
    """``{"order": 17, "kind": "times out once", "amount": 120, "fails": 1}``: the same orders in the same shuffled order each time."""
    deck = [kind for kind in mix for _ in range(kind.weight)]
    random.Random(1).shuffle(deck)
    for number in range(count):
        kind = deck[number % len(deck)]
        yield {"order": number, "kind": kind.name, **kind.content}


def traceparent() -> str:
    """A new W3C trace context, for the header ``traceparent``. redrive shows the trace id of a dead letter from this header."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def produce_orders(kafka: Mapping[str, str], count: int, mix: Sequence[Kind] = MIX, topic: str = "orders") -> list[dict[str, Any]]:
    """Writes ``count`` orders, with a customer as key, and returns them. Raises KafkaException unless Kafka has acknowledged all."""
    producer = Producer(
        {
            # librdkafka prints nothing to standard error: failures are raised as exceptions
            "log_level": "0",
            **kafka,
            "enable.idempotence": True,
            # Java's partitioner, so that a key goes to the same partition as with Java clients
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": max(count, 1),
        }
    )
    written = list(orders(count, mix))
    problems: list[object] = []
    for order in written:
        producer.produce(
            topic,
            json.dumps(order),
            f"customer-{order['order'] % 20}",
            headers=[("content-type", b"application/json"), ("traceparent", traceparent().encode())],
            on_delivery=lambda problem, _: problems.append(problem) if problem else None,
        )
        producer.poll(0)
    producer.flush()
    if problems:
        raise KafkaException(problems[0])
    return written


def main() -> None:
    """Writes orders once."""
    parser = argparse.ArgumentParser(description="Writes orders for examples.flaky_consumer.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka brokers")
    parser.add_argument("--count", type=int, default=100, help="how many orders (default: %(default)s)")
    parser.add_argument("--topic", default="orders", help="the topic they go to (default: %(default)s)")
    options = parser.parse_args()
    written = produce_orders({"bootstrap.servers": options.bootstrap}, options.count, topic=options.topic)
    for kind in MIX:
        print(f"{sum(order['kind'] == kind.name for order in written):6} {kind.name}")


if __name__ == "__main__":
    main()
