"""Measures at the topic what a redrive's rate is: dead letters redriven at 1/s, 50/s and 1,000/s at the same time, a minute each.

When a third has come, the loop is stopped and started again. A rate is kept if no second and no ten seconds have more than it says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from bench.consumer import Reader, redrive, redrive_run
from bench.reports import report_failures
from orchestration.kafka.cluster import Cluster


def bench_rate(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """Two objects per rate, before and after the stop: how many came, in how many seconds, and the most in one and in ten seconds."""
    rates = (1, 20) if quick else (1, 50, 1_000)
    seconds = 30 if quick else 60
    names = {rate: f"orders{rate}" for rate in rates}
    retries, dead = ({rate: name + suffix for rate, name in names.items()} for suffix in ("-billing-retry", ".dlq"))
    topics = ("redrive.failures", "redrive.failures.dlq", *retries.values(), *dead.values())
    cluster = Cluster(kafka)
    cluster.create(NewTopic(name, 3, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    cluster.create([NewTopic("redrive.commands", 1, 1)])
    fatal = {"redrive-error-class": b"KeyError", "redrive-error-message": b"'amount'"}
    for rate, name in names.items():
        report_failures(kafka, name, rate * seconds, 0, stack=None, error=lambda number: fatal)
    reader = Reader(kafka, [*retries.values(), *dead.values()])
    with redrive_run(kafka, home):
        for rate, topic in dead.items():
            reader.until(topic, rate * seconds)
        # the quickest first: to list its messages takes longest
        for rate, name in reversed(names.items()):
            print(redrive(kafka, home, "dlq", "redrive", "--topic", name, "--rate", f"{rate}/s", "--reason", "measured"), file=sys.stderr)
        for rate, topic in retries.items():
            reader.until(topic, rate * seconds // 3)
    came_before = {topic: len(came) for topic, came in reader.came.items()}
    with redrive_run(kafka, home):
        for rate, topic in retries.items():
            reader.until(topic, rate * seconds)
    reader.close()
    figures = []
    for rate, topic in retries.items():
        came = reader.came[topic]
        for part, some in (("before the stop", came[: came_before[topic]]), ("after the start", came[came_before[topic] :])):
            figures.append(
                {
                    "rate": f"{rate:,}/s, {part}",
                    "messages": len(some),
                    "seconds": some[-1] - some[0],
                    "most_in_1_s": most_within(some, 1),
                    "most_in_10_s": most_within(some, 10),
                    "twice": reader.twice[topic],
                    "early": sum(late < 0 for late in reader.late[topic]),
                }
            )
    return figures


def most_within(times: list[float], seconds: float) -> int:
    """The most of these times, in ascending order, that lie within so many seconds, the end excluded."""
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
