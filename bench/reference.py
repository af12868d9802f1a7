"""Compares reports by reference with reports that bring their payload: the time of the steps, and the bytes in the tables for each retry.

Real records of 2 kB fail once each; their retries are due at once. The two ways of reporting alternate in one loop.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from publisher import make_client

_VALUE_BYTES = 2_000
_WAYS = {"with payload": "failures", "by reference": "references"}


def bench_reference(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per way of reporting: rows, intake_ms, decide_ms, publish_ms (medians), bytes of data files per retry, by table."""
    rows, runs = (500, 1) if quick else (5_000, 5)
    topics = ("orders", "orders-billing-retry", "orders.dlq", *(f"redrive.{name}" for name in _WAYS.values()))
    Cluster(kafka).create(NewTopic(name, 6, 1) for name in topics)
    seeds = home / "seeds"
    _write_seeds(seeds)
    settings = load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
    with closing(Loop(settings)) as loop:
        loop.start()
        # the first round warms up
        for turn in range(-1, runs):
            for way, name in _WAYS.items():
                figures = _round(loop, kafka, f"redrive.{name}", rows, with_payload=way == "with payload")
                if turn >= 0:
                    measured[way].append(figures)
    return [
        {"way": way, "rows": rows, **{figure: round(statistics.median(one[figure] for one in found)) for figure in found[0]}}
        for way, found in measured.items()
    ]


def _round(loop: Loop, kafka: dict[str, str], reports: str, rows: int, *, with_payload: bool) -> dict[str, float]:
    before = {table: _bytes(loop, table) for table in ("events", "deliveries")}
    _fail(kafka, reports, rows, with_payload=with_payload)
    steps = {"intake": 0, "decide": 0, "publish": 0}
    delivered = 0
    while delivered < rows:
        tick = loop.tick()
        delivered += tick.counts.get("delivered", 0)
        for step in steps:
            steps[step] += tick.step_ms.get(step, 0)
    after = {table: _bytes(loop, table) - size for table, size in before.items()}
    return {**{f"{step}_ms": took for step, took in steps.items()}, **{f"{table}_bytes": size / rows for table, size in after.items()}}


def _bytes(loop: Loop, table: str) -> int:
    (row,) = loop.spark.sql(f"select coalesce(sum(file_size_in_bytes), 0) as size from {loop.schema}.{table}.files").collect()
    return int(row["size"])


def _fail(kafka: dict[str, str], reports: str, rows: int, *, with_payload: bool) -> None:
    """Writes records, and reports that each has failed."""
    producer = make_client(Producer, {**kafka, "linger.ms": 5}, kafka)
    places: list[tuple[int, int, int]] = []
    # random bytes: a value that compresses well would show no difference
    contents = [os.urandom(_VALUE_BYTES) for _ in range(rows)]

    def written(_: object, message: Any) -> None:
        places.append((message.partition(), message.offset(), int(message.key())))

    for number, content in enumerate(contents):
        producer.produce("orders", content, str(number), on_delivery=written)
        producer.poll(0)
    producer.flush()
    for partition, offset, number in places:
        said = {
            "redrive-error-class": "TimeoutError",
            "redrive-error-message": "no answer within 2 s",
            "redrive-original-topic": "orders",
            "redrive-original-partition": str(partition),
            "redrive-original-offset": str(offset),
            "redrive-failed-at": str(int(time.time() * 1000)),
            "redrive-consumer-group": "billing",
        }
        value, key = (contents[number], str(number)) if with_payload else (None, None)
        producer.produce(reports, value, key, headers=list(said.items()))
        producer.poll(0)
    producer.flush()


def _write_seeds(directory: Path) -> None:
    directory.mkdir()
    for path in load_settings().seeds.glob("*.csv"):
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / "sources.csv").write_text(
        "source,topic,dialect,consumer_group,speaks_for,start,states_kind,payload\n"
        "failures,redrive.failures,redrive,,orders,earliest,true,keep\n"
        "references,redrive.references,redrive,,orders,earliest,true,reference\n",
        encoding="utf-8",
    )
    (directory / "retry_policies.csv").write_text('policy,definition\nnow,"fixed(1ms x 5)"\n', encoding="utf-8")
    (directory / "routes.csv").write_text(
        "topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic\n"
        "*,*,*,now,now,{topic}-{group}-retry,{topic}.dlq\n",
        encoding="utf-8",
    )
