"""Measures how late retries reach a consumer: failures at an even rate, each retried after 1, 2 and 4 s, without jitter.

`redrive run` is a process of its own, as in production; this process is the producer, and the consumer that fails each message three times.
Lateness is the time at which the consumer receives a retry, minus the due time that the retry's header states.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import DELAYS, RETRIES, FailingConsumer, figures_of, redrive_run
from bench.memory import peak_mb
from orchestration.kafka.cluster import Cluster


def bench_lateness(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per delay: how many retries arrived, their lateness in seconds, and how many came early, twice, or not at all."""
    a_second, seconds = (20, 30) if quick else (200, 300)
    topics = ("redrive.failures", "redrive.failures.dlq", RETRIES, "orders.dlq")
    Cluster(kafka).create(NewTopic(name, 3, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    consumer = FailingConsumer(kafka)
    with redrive_run(kafka, home) as loop:
        # warms up: the first decisions of a process take seconds longer
        consumer.fail(a_second)
        consumer.until(3 * a_second)
        consumer.forget()
        began = time.monotonic()
        for second in range(seconds):
            consumer.fail(a_second)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            if second % 30 == 29:
                print(f"{second + 1} s: {consumer.in_short()}", file=sys.stderr)
        consumer.until(3 * a_second * seconds)
        memory = peak_mb(loop.pid)
    consumer.close()
    return [
        {
            "delay": delay,
            "failures_a_second": a_second,
            "retries": len(late := consumer.lateness[attempt]),
            **figures_of(late),
            "twice": consumer.twice[attempt],
            "missing": a_second * seconds - len(late),
            "memory_mb": memory,
            "percentiles_s": statistics.quantiles(late, n=100),
        }
        for attempt, delay in DELAYS.items()
    ]
