"""Generates deliveries for the benchmarks in Spark, and writes them into the wheel as a decide run would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from orchestration.loop.loop import Loop

VALUE_BYTES = 500

# Rows in a file of a decide run, which writes thousands of rows at once, not millions.
ROWS_PER_FILE = 25_000


def fill_wheel(
    spark: SparkSession,
    schema: str,
    name: str,
    rows: int,
    due_from: datetime,
    spread_ms: int,
    batch: int,
    but: Mapping[str, str] | None = None,
) -> None:
    """Writes `rows` retries of messages of the topic `<name>`, due within `spread_ms` from `due_from`. Values of 500 bytes, 3 headers.

    but: expressions over `id` for columns that shall have other values.
    """
    columns = spark.table(f"{schema}.deliveries").schema
    made = spark.sql(
        f"""
        select
            id,
            concat('{name}/', id) as input_id,
            cast({batch} as bigint) as batch,
            1L as decide_run,
            timestamp '{due_from:%Y-%m-%d %H:%M:%S}' as recorded_at,
            'bench' as source,
            concat('billing:{name}/', id % 6, '/', id div 6) as message_id,
            1 as life_cycle, 1 as attempt, 0 as publish_attempt, 5 as max_attempts,
            '{name}' as original_topic, cast(id % 6 as int) as original_partition, id div 6 as original_offset,
            timestamp '{due_from:%Y-%m-%d %H:%M:%S}' as original_timestamp,
            'billing' as consumer_group,
            'retry' as decision, 'retriable' as reason, 'retry' as kind,
            concat('billing:{name}/', id % 6, '/', id div 6, '#', left(sha2(cast(id as string), 256), 12)) as delivery_id,
            timestamp_millis(unix_millis(timestamp '{due_from:%Y-%m-%d %H:%M:%S}') + id * {spread_ms} div {rows}) as due_at,
            date_trunc('hour', due_at) as due_hour,
            '{name}-billing-retry' as topic, cast(id % 6 as int) as partition, 1000L as delay_ms,
            timestamp '{due_from:%Y-%m-%d %H:%M:%S}' as failed_at,
            'TimeoutError' as error_class, 'retriable' as error_kind,
            cast(concat('key-', id) as binary) as key,
            cast(rpad(concat('value-', id), {VALUE_BYTES}, 'x') as binary) as value,
            array(
                struct('content-type' as key, cast('application/json' as binary) as value),
                struct('trace-id' as key, cast(sha2(cast(id as string), 256) as binary) as value),
                struct('tenant' as key, cast('acme' as binary) as value)
            ) as headers,
            {VALUE_BYTES + 10}L as payload_bytes
        from range(0, {rows}, 1, {max(1, rows // ROWS_PER_FILE)})
        """
    )
    made = made.withColumns({column: F.expr(expression) for column, expression in (but or {}).items()})
    given = set(made.columns)
    made.createOrReplaceTempView("bench_wheel")
    select = ", ".join(f"cast({c.name if c.name in given else 'null'} as {c.dataType.simpleString()}) as {c.name}" for c in columns)
    spark.sql(
        f"""
        insert into {schema}.deliveries by name
        select {select} from bench_wheel
        sort by original_topic, original_partition, original_offset
        """
    )


def acknowledge(loop: Loop, topic: str) -> None:
    """Appends results that say that all deliveries of messages of a topic were sent when they were due."""
    results = loop.spark.sql(
        f"""
        select
            delivery_id, due_at, kind, message_id, topic, partition, 'delivered' as outcome, due_at as sent_at, consumer_group,
            original_topic, original_partition, original_offset, original_offset as offset
        from {loop.schema}.deliveries
        where original_topic = '{topic}'
        """
    )
    loop.ledgers.append("publish_results", results, loop.clock.now())


def fall_due(loop: Loop, name: str, rows: int) -> None:
    """Adds retries that became due within one second just before now, and has the loop read that time again. Nothing may be undecided."""
    now = loop.clock.now()
    fill_wheel(loop.spark, loop.schema, name, rows, now - timedelta(seconds=5), 1_000, loop.ledgers.batch)
    # as if this batch were decided: a decide run from a lower watermark on would find it in the wheel, and write nothing
    loop.state = replace(loop.state, watermark=loop.ledgers.batch)
    look_again(loop, now - timedelta(seconds=10))


def settle(loop: Loop) -> None:
    """Runs ticks until one had nothing to do."""
    while loop.tick().did_something:
        pass


def look_again(loop: Loop, since: datetime) -> None:
    """Has the loop read from `since` on again."""
    loop.look_now(since)
