"""Reads the outcome of a redrive's canaries: the messages that are sent first, before the rest of the command's list."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Row, SparkSession

from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.tables.rows import collected

# The decisions after a send that Kafka refused for good. tests/unit/test_decision_reasons.py compares them with the table of reasons.
_SEND_FAILED = ("dead_letter", "parked")


def canaries_of(spark: SparkSession, schema: str, command: str, closed_batch: int, canary: int) -> list[Row]:
    """The canaries of a command, one row each, without a decision if there is none yet. One that has no row any more was finished long ago,
    and maintenance has removed it. A `duplicate` means that the message was on its way already; it is not a failure.

    issued_in: the batch in which its order was written. failed_in: the first batch whose decision says that the canary failed, or was
    refused; null if it has not failed so far.
    """
    rows = spark.sql(
        f"""
        with

        orders as (
            select concat_ws('/', topic_id, partition, offset, index) as input_id, batch as issued_in from {schema}.events
            where batch >= {closed_batch:d} and command = '{command}' and kind <> 'command' and index < {canary:d}
        ),

        redriven as (
            select distinct input_id, deliveries.batch, issued_in, decision, message_id, life_cycle, original_topic
            from orders left join (select * from {schema}.deliveries where batch >= {closed_batch:d}) as deliveries using (input_id)
        ),

        failed as ({_failed(schema, closed_batch)}),

        sent as (
            select message_id, max_by(struct(consumer_group, topic, partition, offset, sent_at), batch) as sent
            from {schema}.publish_results
            where batch >= {closed_batch:d} and outcome = 'delivered' and kind <> 'dead_letter'
            group by message_id
        ),

        settled_offsets as ({_settled_offsets(schema, closed_batch)})

        select
            redriven.message_id,
            redriven.decision,
            redriven.original_topic,
            redriven.issued_in,
            if(redriven.decision in ('redrive', 'retry', 'follows', 'duplicate'), failed.batch, redriven.batch) as failed_in,
            sent.sent,
            coalesce(settled.offset > sent.sent.offset and settled.settled_at >= sent.sent.sent_at, false) as has_settled
        from redriven
        left join failed on redriven.input_id = failed.input_id
        left join sent on redriven.message_id = sent.message_id
        left join settled_offsets as settled
            on sent.sent.consumer_group = settled.consumer_group
                and sent.sent.topic = settled.topic
                and sent.sent.partition = settled.partition
        """
    )
    return collected(rows)


def _failed(schema: str, closed_batch: int) -> str:
    """The batches in which canaries that were sent have failed again, as in the macro `failed_again`, or were cancelled.

    In the mart `redrives`, a cancellation is not a failure. Here it must count as one: a cancelled canary never succeeds, so the rest of
    the command would wait for ever.
    """
    ended = ", ".join(f"'{decision}'" for decision in (*_SEND_FAILED, "cancelled"))
    return f"""
        select redriven.input_id, min(later.batch) as batch
        from redriven
        inner join {schema}.deliveries as later
            on redriven.message_id = later.message_id and redriven.life_cycle = later.life_cycle and redriven.batch < later.batch
        where
            later.batch >= {closed_batch:d}
            and later.decision not in ('duplicate', 'follows') and (later.report_topic is not null or later.decision in ({ended}))
        group by redriven.input_id
    """


def _settled_offsets(schema: str, closed_batch: int) -> str:
    """As the mart `settled_offsets`, but only from a batch on: `ticks` grows without end, and this statement runs every two seconds."""
    return f"""
        select
            settled.consumer_group,
            settled.topic,
            settled.partition,
            max_by(settled.offset, batch) as offset,
            max(recorded_at) as settled_at
        from (select batch, recorded_at, explode(settled) as settled from {schema}.ticks where batch >= {closed_batch:d})
        group by settled.consumer_group, settled.topic, settled.partition
    """


def had_failed(canaries: list[Row], canary: int | None, batch: int) -> bool:
    """Whether all canaries had been issued before this batch, and one had failed: before all of them are issued, nothing is held."""
    issued = [row for row in canaries if row["issued_in"] < batch]
    return len(issued) == canary and any(row["failed_in"] is not None and row["failed_in"] < batch for row in issued)


def has_succeeded(canary: Row, assume_after: timedelta, consumers: Consumers, now: datetime, *, complete: Completeness) -> bool:
    """Whether a canary was processed: its offset is settled, or its group commits no offsets and no report came within `assume_after`."""
    if canary["decision"] == "duplicate" or canary["has_settled"]:
        return True
    sent = canary["sent"]
    if sent is None or not complete.of([canary["original_topic"]]):
        return False
    sent_at = sent["sent_at"]
    place = None if sent["consumer_group"] is None else Place(sent["consumer_group"], sent["topic"], sent["partition"])
    return sent_at + assume_after <= now and (place is None or consumers.is_silent(place, sent_at))
