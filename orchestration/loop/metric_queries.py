"""The statements by which the metrics are counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Row

from orchestration.clock import literal
from orchestration.loop.metric_names import LATENESS, OTHER
from orchestration.loop.steps import BULK, TIMED

# How many groups of decisions, and as many of sends, one statement may bring to the driver; the rest is counted as `other`.
_GROUPS = 1000

# How many rows of the wheel are looked at to count what waits; the rest is taken from Iceberg's own counts.
_WAITING_ROWS = 200_000

_HOUR = timedelta(hours=1)


def written_since(schema: str, decided: int, watermark: int, written: int, batch: int, slots: int) -> str:
    """Counts decisions and results since the last count. slots: those of the bulk lane; the timed lane has the next.

    Beyond _GROUPS, topic and class are `other`: a tick may have 50,000 classes.
    """
    bucket = " ".join(f"when lateness_ms <= {round(bound * 1000)} then {place}" for place, bound in enumerate(LATENESS.buckets))
    kept = f"place <= {_GROUPS}"
    return f"""
        with

        decided as (
            select
                'decided' as what, original_topic as topic, error_class, error_kind, decision, reason,
                cast(null as string) as kind, cast(null as string) as outcome, cast(null as string) as error_name,
                cast(null as string) as lane, cast(null as int) as bucket, count(*) as rows, cast(null as bigint) as lateness_ms
            from {schema}.decisions
            where batch > {decided} and batch <= {watermark}
            group by original_topic, error_class, error_kind, decision, reason
        ),

        results as (
            select
                topic, kind, outcome, error_name, case when slot = {slots} then '{TIMED}' else '{BULK}' end as lane,
                case when outcome = 'delivered' then greatest(unix_millis(sent_at) - unix_millis(due_at), 0) end as lateness_ms
            from {schema}.publish_results
            where batch > {written} and batch <= {batch} and outcome <> 'start'
        ),

        sent as (
            select
                'sent' as what, topic, null as error_class, null as error_kind, null as decision, null as reason,
                kind, outcome, error_name, lane, case {bucket} else {len(LATENESS.buckets)} end as bucket,
                count(*) as rows, sum(lateness_ms) as lateness_ms
            from results
            group by topic, kind, outcome, error_name, lane, bucket
        ),

        ranked as (
            select *, row_number() over (partition by what order by rows desc) as place
            from (select * from decided union all select * from sent) as counted
        )

        select
            what, case when {kept} then topic else '{OTHER}' end as topic,
            case when {kept} then error_class else '{OTHER}' end as error_class,
            error_kind, decision, reason, kind, outcome, error_name, lane, bucket, sum(rows) as rows, sum(lateness_ms) as lateness_ms
        from ranked
        group by all
    """


def rows_by_hour(schema: str, low: datetime) -> str:
    """Rows of the wheel from a moment on, by the hour in which they are due: from Iceberg's metadata, without reading rows."""
    return f"""
        select timestamp_seconds(partition.due_at_hour * 3600) as due_hour, sum(record_count) as rows
        from {schema}.deliveries.files
        where readable_metrics.due_at.upper_bound >= {literal(low)}
        group by due_hour
        order by due_hour
    """


def reach(hours: Sequence[Row], floor: datetime) -> tuple[datetime | None, int]:
    """The time up to which rows of the wheel are read, None if none are, and how many rows are due later."""
    seen = 0
    upto: datetime | None = None
    for place, hour in enumerate(hours):
        seen += hour["rows"]
        if seen > _WAITING_ROWS:
            # without the hours before the floor, whose rows are nearly all closed
            later = [other["rows"] for other in hours[place:] if other["due_hour"] + _HOUR > floor]
            return upto, sum(later)
        upto = hour["due_hour"] + _HOUR
    return upto, 0


def open_deliveries(schema: str, low: datetime, upto: datetime) -> str:
    """What is open between two moments, by original topic."""
    return f"""
        with

        counted as (
            select original_topic as topic, kind, count(*) as rows
            from {schema}.ready
            where due_at >= {literal(low)} and due_at < {literal(upto)}
                and due_hour >= date_trunc('hour', {literal(low)}) and due_hour < {literal(upto)}
            group by original_topic, kind
        ),

        ranked as (
            select *, row_number() over (order by rows desc) as place from counted
        )

        select case when place <= {_GROUPS} then topic else '{OTHER}' end as topic, kind, sum(rows) as rows
        from ranked
        group by all
    """


def open_dead_letters(schema: str) -> str:
    """Open dead letters by original topic and owner."""
    return f"""
        with

        counted as (
            select original_topic as topic, owner, count(*) as rows
            from {schema}.dead_letters
            where state = 'open'
            group by original_topic, owner
        ),

        ranked as (
            select *, row_number() over (order by rows desc) as place from counted
        )

        select case when place <= {_GROUPS} then topic else '{OTHER}' end as topic, owner, sum(rows) as rows
        from ranked
        group by all
    """
