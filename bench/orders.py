"""Measures a usual load: 50 orders a second with errors of all kinds, through one loop alone, and while a second loop does the same.

Each order fails one and a half times on average: most errors pass, some last until the policy ends, some are fatal at once. Also measures a
first start with an empty home, until the first retry has come, alone and beside this load.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import FailingConsumer, beside, figures_of, redrive_run
from bench.memory import peak_mb
from orchestration.kafka.cluster import Cluster

# Of a hundred orders, how many fail with an error, and how often. Others are processed at once.
_FATES = (
    (35, "TimeoutError", 1),
    (20, "java.net.ConnectException", 2),
    (10, "java.io.IOException", 5),
    (5, "QuotaExceededException", 1),
    (15, "com.example.FatalException", 1),
    (5, "com.example.PoisonException", 1),
)


class OrdersConsumer(FailingConsumer):
    """Fails as often, and with such errors, as its key says."""

    def error(self, key: bytes, attempt: int) -> str | None:
        """The error of an attempt; None: it succeeds."""
        chosen = int.from_bytes(hashlib.sha256(key).digest()[:4], "big") % 100
        for share, error, times in _FATES:
            if chosen < share:
                return error if attempt <= times else None
            chosen -= share
        return None


def bench_orders(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per loop and case: lateness of all retries, and how many came early or twice."""
    a_second, seconds = (10, 20) if quick else (50, 180)
    figures = []
    for case, numbers in (("alone", ["1"]), ("beside another", ["2", "3"])):
        with ExitStack() as stack:
            loops, consumers = [], []
            for number in numbers:
                _make_topics(kafka, number)
                consumers.append(OrdersConsumer(kafka, number))
                loops.append(stack.enter_context(redrive_run(kafka, home / number, number)))
            for consumer in consumers:
                consumer.fail(a_second)
                consumer.until(a_second // 2)
                # what is still to come of these orders comes within the ladder
                time.sleep(20)
                consumer.forget()
            for second in _seconds(seconds):
                for consumer in consumers:
                    consumer.fail(a_second)
                if second % 30 == 29:
                    print(f"{case}, {second + 1} s: {consumers[0].in_short()}", file=sys.stderr)
            time.sleep(45)
            for number, consumer, loop in zip(numbers, consumers, loops, strict=True):
                late = [one for _, one in consumer.arrivals]
                figures.append(
                    {
                        "loop": case if number == numbers[0] else "that other",
                        "retries": len(late),
                        **figures_of(late),
                        "twice": sum(consumer.twice.values()),
                        "memory_mb": peak_mb(loop.pid),
                    }
                )
                consumer.close()
    return figures


def bench_start(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: seconds from the start of the process, with an empty home, until the first retry has come."""
    figures = []
    for case, number, a_second in (("alone", "1", 0), ("beside orders", "2", 10 if quick else 50)):
        _make_topics(kafka, number)
        consumer = OrdersConsumer(kafka, number)
        consumer.fail(50)

        def write(ends: threading.Event, consumer: OrdersConsumer = consumer, a_second: int = a_second) -> None:
            while a_second and not ends.wait(1):
                consumer.fail(a_second)

        with beside(write):
            began = time.time()
            with redrive_run(kafka, home / number, number):
                consumer.until(1)
                figures.append({"start": case, "first_s": consumer.arrivals[0][0] - began, "orders_a_second": a_second})
        consumer.close()
    return figures


def _make_topics(kafka: dict[str, str], number: str) -> None:
    orders, reports = f"orders{number}", f"redrive.failures{number}"
    topics = (reports, f"{reports}.dlq", f"{orders}-billing-retry", f"{orders}.dlq")
    Cluster(kafka).create(NewTopic(name, 3, 1, config={"max.message.bytes": "4000000"}) for name in topics)


def _seconds(count: int) -> Iterator[int]:
    """The numbers of so many seconds, each when it begins; ends when the last is over."""
    began = time.monotonic()
    for second in range(count):
        yield second
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
