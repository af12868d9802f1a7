"""Compares the publish step with a bare produce loop: the cost of sending from tables, and of recording the results.

Both send as many rows to the same topic, with the same producer settings, in transactions of the same size, with a report for each row. The
publish step reads `ready`, sends through Spark and appends the results to their ledger; the bare loop repeats a thousand of the rows from
memory and keeps nothing. They alternate, three times each; the medians are compared.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.cimpl import NewTopic

from bench.wheel import fill_wheel
from orchestration.kafka.cluster import Cluster
from orchestration.loop.due import Due
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from publisher import make_client

_TRANSACTION_ROWS = 50_000


def bench_publish(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per size: rows, publish_rows_s, bare_rows_s, ratio."""
    sizes, runs = ((1_000, 10_000), 1) if quick else ((1_000, 10_000, 100_000, 1_000_000), 3)
    loop = Loop(
        load_settings(
            home=home / "state",
            kafka={**kafka, "log_level": "0"},
            publish_max_rows=1_000_000,
            publish_max_bytes=2**31,
            look_ahead_seconds=0,
        )
    )
    loop.start()
    cluster = Cluster(kafka)
    figures: list[dict[str, Any]] = []
    # each run has its own hour, so that it doesn't read the rows of other runs
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = (hour - timedelta(hours=number) for number in count(1))
    _publish(loop, cluster, "warm", 1_000, next(hours))
    for rows in sizes:
        published: list[float] = []
        bare: list[float] = []
        for run in range(runs):
            name = f"bench{rows}x{run}"
            published.append(rows / _publish(loop, cluster, name, rows, next(hours)))
            bare.append(rows / bare_loop(loop, kafka, name, rows))
        figures.append(
            {
                "rows": rows,
                "publish_rows_s": round(statistics.median(published)),
                "bare_rows_s": round(statistics.median(bare)),
                "ratio": round(statistics.median(published) / statistics.median(bare), 3),
            }
        )
    loop.close()
    return figures


def _publish(loop: Loop, cluster: Cluster, name: str, rows: int, due: datetime) -> float:
    """Seconds for publish steps that send the rows due in the minute after `due`, until the results are committed."""
    cluster.create([NewTopic(f"{name}-billing-retry", 6, 1)])
    upto = due + timedelta(minutes=1)
    fill_wheel(loop.spark, loop.schema, name, rows, due, 60_000, loop.ledgers.batch)
    now = loop.clock.now()
    began = time.perf_counter()
    sent = 0
    while sent < rows:
        what = Due(due, upto, now)
        sent += loop.leadership.bulk_lane.run(what, loop.clock.now, loop.leadership.bulk_lane.waiting(what)).delivered
    took = time.perf_counter() - began
    # deleted, so that later runs don't read these rows
    loop.spark.sql(f"delete from {loop.schema}.deliveries where original_topic = '{name}'")
    return took


def bare_loop(loop: Loop, kafka: dict[str, str], name: str, rows: int) -> float:
    """Seconds in which a bare produce loop sends as many rows: a thousand of the same rows, again and again from memory."""
    pool = [
        (message.key(), message.value(), message.headers(), message.partition())
        for message in _read_back(kafka, f"{name}-billing-retry", min(rows, 1_000))
    ]
    own = {
        "transactional.id": f"bench.{name}",
        "partitioner": "murmur2_random",
        "linger.ms": 50,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = make_client(Producer, {**loop.settings.kafka_properties, **own}, loop.settings.kafka_properties)
    reports = 0

    def report(error: object, _: Message) -> None:
        nonlocal reports
        assert error is None
        reports += 1

    topic = f"{name}-billing-retry"
    began = time.perf_counter()
    producer.init_transactions(30)
    for start in range(0, rows, _TRANSACTION_ROWS):
        producer.begin_transaction()
        for number in range(start, min(rows, start + _TRANSACTION_ROWS)):
            key, value, headers, partition = pool[number % len(pool)]
            producer.produce(topic, value, key, partition, report, headers=headers)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush()
        producer.commit_transaction(30)
    took = time.perf_counter() - began
    assert reports == rows
    return took


def _read_back(kafka: dict[str, str], topic: str, count: int) -> list[Any]:
    from confluent_kafka import Consumer

    own = {"group.id": "bench", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = make_client(Consumer, {**kafka, **own}, kafka)
    consumer.subscribe([topic])
    messages: list[Any] = []
    while len(messages) < count:
        messages += [message for message in consumer.consume(count, 1.0) if not message.error()]
    consumer.close()
    return messages[:count]
