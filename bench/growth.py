"""Measures a tick with 5,000 new failures and 5,000 due retries while 10 thousand to 10 million other messages wait.

The waiting deliveries are written as by the loop: up to a hundred appends per size, each sorted by original coordinates and spread over all
hours in which its rows are due. Half of them are due within the hour that the tick reads, which is the worst case: the due rows share their
hour with them. The rest is due over the two days after it. New failures, due rows and waiting ones are of the same topic. Offsets rise from
run to run, in all partitions alike; in the case "uneven" faster in some than in others, so that the ranges of different runs overlap.
Values are 96 bytes that don't compress (10 million rows of 500 would be 8 GB on disk).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from bench.reports import report_failures
from bench.rules import seeds_with_policies
from bench.wheel import look_again, settle
from orchestration.clock import LoopClock
from orchestration.kafka.cluster import Cluster
from orchestration.loop.loop import Loop
from orchestration.settings import Settings, load_settings
from orchestration.tables.maintenance import maintain

_TOPIC = "orders"
_PARTITIONS = 6
# In the case "uneven", offsets of the last partition are 21 times as high as those of the first.
_STRIDE = 4
_RUNS = 100
# The ticks run from minute 2 of the hour on, and no waiting row is due before minute 20.
_LOOKS_AT = timedelta(minutes=2)
_WAITS_UNTIL = timedelta(minutes=20)
_HOURS = 48


def bench_growth(kafka: dict[str, str], home: Path, quick: bool) -> list[dict[str, Any]]:
    """One object per case: pending, seconds (median of a tick), by step in milliseconds (medians), files of the wheel, ratio to 100,000."""
    sizes, runs, rows = ((10_000, 100_000), 3, 5_000) if quick else ((10_000, 100_000, 1_000_000, 10_000_000), 5, 5_000)
    topics = ("redrive.failures", "redrive.failures.dlq", f"{_TOPIC}-billing-retry", f"{_TOPIC}.dlq")
    Cluster(kafka).create(NewTopic(name, _PARTITIONS, 1, config={"max.message.bytes": "4000000"}) for name in topics)
    settings = _settings(kafka, home)
    loop = Loop(settings)
    loop.start()
    wheel = Wheel(loop.spark, loop.schema)
    # loop time may be ahead of the wall clock, but never goes back, so each size has a later hour than the one before
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    figures: list[dict[str, Any]] = []
    for size, stride in [*((size, 0) for size in sizes), (100_000, _STRIDE)]:
        case = f"{size:,}, uneven" if stride else f"{size:,}"
        hour += timedelta(hours=1)
        wheel.stride = stride
        filled = wheel.fill(size, hour)
        maintained = sum(table.milliseconds for table in maintain(settings, loop.spark).tables)
        files = wheel.files()
        print(f"{case} wait in {files:,} files: filled in {filled:.0f} s, maintained in {maintained / 1000:.0f} s", file=sys.stderr)
        loop.clock = LoopClock(hour + _LOOKS_AT)
        settle(loop)
        took: list[float] = []
        steps: dict[str, list[int]] = {"intake": [], "decide": [], "publish": []}
        for run in range(runs + 1):
            _make_due(loop, wheel, kafka, rows)
            began = time.perf_counter()
            tick = loop.tick()
            seconds = time.perf_counter() - began
            # the first one warms up
            if run:
                assert (tick.counts["events"], tick.counts["delivered"]) == (rows, rows), tick.counts
                took.append(seconds)
                for step, times in steps.items():
                    times.append(tick.step_ms[step])
            settle(loop)
        assert loop.clock.now() < hour + _WAITS_UNTIL, "measuring took so long that what should wait is due"
        figures.append(
            {
                "pending": case,
                "seconds": statistics.median(took),
                **{f"{step}_ms": round(statistics.median(times)) for step, times in steps.items()},
                "files": files,
            }
        )
        print(figures[-1], file=sys.stderr)
    loop.close()
    base = next(row["seconds"] for row in figures if row["pending"] == "100,000")
    return [{**row, "of 100,000": row["seconds"] / base} for row in figures]


def _settings(kafka: dict[str, str], home: Path) -> Settings:
    """With a delay of an hour for new failures: with a short one, they would be due within the same tick."""
    seeds = seeds_with_policies(home, default="exponential(initial=1h, max=2h, attempts=5)", patient="exponential(initial=1s)")
    return load_settings(home=home / "state", seeds=seeds, kafka={**kafka, "log_level": "0"}, look_ahead_seconds=0)


def _make_due(loop: Loop, wheel: Wheel, kafka: dict[str, str], rows: int) -> None:
    """Makes the work of the next tick: `rows` that have become due, and as many new failures."""
    now = loop.clock.now()
    wheel.due(rows, now - timedelta(seconds=5))
    look_again(loop, now - timedelta(seconds=10))
    wheel.offset = report_failures(
        kafka,
        _TOPIC,
        rows,
        wheel.offset,
        partitions=_PARTITIONS,
        stride=lambda partition: 1 + wheel.stride * partition,
        value=lambda: os.urandom(96),
        stack=None,
        failed_at_ms=round(now.timestamp() * 1000),
    )


class Wheel:
    """Deliveries, written as by decide runs. `offset`: the next original offset of every partition, without the stride.

    `stride`: how much faster offsets rise in each partition than in the one before; 0: in all alike.
    """

    def __init__(self, spark: SparkSession, schema: str) -> None:
        self._spark = spark
        self._table = f"{schema}.deliveries"
        self._columns = {column.name: column.dataType.simpleString() for column in spark.table(self._table).schema}
        self._runs = 0
        self.offset = 0
        self.stride = 0

    def empty(self) -> None:
        """Deletes all deliveries, so that each size is measured with its own only."""
        self._spark.sql(f"delete from {self._table}")

    def fill(self, size: int, hour: datetime) -> float:
        """Replaces all deliveries by `size` waiting ones; returns the seconds that it took."""
        began = time.perf_counter()
        self.empty()
        appends = min(_RUNS, size // 500)
        for _ in range(appends):
            self.decide(size // appends, hour)
        return time.perf_counter() - began

    def files(self) -> int:
        """How many data files the wheel consists of."""
        return int(self._spark.sql(f"select count(*) as files from {self._table}.files").collect()[0]["files"])

    def decide(self, rows: int, hour: datetime) -> None:
        """One append: half of the rows are due within the hour, from minute 20 on, the others over the two days after it.

        One row in a hundred is a duplicate, due at the start of the hour, so that the due times of each file of the hour overlap with those
        that the tick reads.
        """
        until = 60 - _WAITS_UNTIL.seconds // 60
        self._append(
            rows,
            hour,
            f"""
            case
                when id % 100 = 0 then 0
                when id % 2 = 0 then {_WAITS_UNTIL.seconds} * 1000 + pmod(xxhash64(id), {until} * 60000)
                else 3600000 + pmod(xxhash64(id), {_HOURS} * 3600000)
            end
            """,
        )

    def due(self, rows: int, since: datetime) -> None:
        """One append of rows that have become due within a second."""
        self._append(rows, since, "pmod(xxhash64(id), 1000)", is_duplicate="false")

    def _append(self, rows: int, since: datetime, due_after_ms: str, is_duplicate: str = "id % 100 = 0") -> None:
        at = f"timestamp '{since:%Y-%m-%d %H:%M:%S.%f}'"
        offset = f"(id div {_PARTITIONS}) * (1 + {self.stride} * (id % {_PARTITIONS}))"
        message_id = f"concat('billing:{_TOPIC}/', id % {_PARTITIONS}, '/', {offset})"
        self._runs += 1
        given = {
            "input_id": "concat('bench/', id)",
            # a distinct batch for each decide run, below those of the ledgers
            "batch": f"{self._runs - 1_000_000}",
            "decide_run": f"{self._runs}",
            "recorded_at": at,
            "source": "'bench'",
            "message_id": message_id,
            "life_cycle": "1",
            "attempt": "1",
            "publish_attempt": "0",
            "max_attempts": "5",
            "original_topic": f"'{_TOPIC}'",
            "original_partition": f"id % {_PARTITIONS}",
            "original_offset": offset,
            "original_timestamp": at,
            "consumer_group": "'billing'",
            "report_topic": "'redrive.failures'",
            "report_partition": f"id % {_PARTITIONS}",
            "report_offset": f"id div {_PARTITIONS}",
            "decision": f"if({is_duplicate}, 'duplicate', 'retry')",
            "reason": f"if({is_duplicate}, 'known_already', 'retriable')",
            "kind": f"if({is_duplicate}, null, 'retry')",
            "delivery_id": f"concat({message_id}, '#', left(sha2(string(id), 256), 12))",
            "due_at": "due_at",
            "due_hour": "date_trunc('hour', due_at)",
            "topic": f"'{_TOPIC}-billing-retry'",
            "partition": f"id % {_PARTITIONS}",
            "delay_ms": "1000",
            "failed_at": at,
            "happened_at": at,
            "first_failed_at": at,
            "error_class": "'TimeoutError'",
            "error_message": "'no answer within 2 s'",
            "error_kind": "'retriable'",
            "policy": "'default'",
            "content_hash": "sha2(string(id), 256)",
            "key": "binary(concat('key-', id))",
            # 96 bytes that don't compress
            "value": "concat(unhex(sha2(concat('a', id), 256)), unhex(sha2(concat('b', id), 256)), unhex(sha2(concat('c', id), 256)))",
            "headers": "array(struct('trace-id' as key, unhex(md5(string(id))) as value))",
            "payload_bytes": "106",
        }
        select = ", ".join(f"cast({given.get(name, 'null')} as {kind}) as {name}" for name, kind in self._columns.items())
        first = self.offset * _PARTITIONS
        self._spark.sql(
            f"""
            insert into {self._table} by name
            select {select}
            from (select id, timestamp_millis(unix_millis({at}) + {due_after_ms}) as due_at from range({first}, {first + rows}))
            sort by original_topic, original_partition, original_offset
            """
        )
        self.offset += -(-rows // _PARTITIONS)
