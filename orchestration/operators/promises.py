"""The promises that `redrive verify` proves, each as a query for what breaks it: rows with `subject` and `detail`, both texts.

The queries read the ledgers, the decisions, what the topics hold, and the states of messages where a promise is about these. They may
refer to `{first}` and `{upto}`, the batches between which results and decisions are judged; `{watermark}`, up to which everything is
decided; `{recorded_until}`: what was sent before has a result; and to the views `verified_records`, what was found in the topics, and
`verified_ranges`, the offsets that were read there; and to `{direct_ids}`, an expression for the ids of what this installation has sent
directly, without a decision; `{kept_since}`: the results of what was sent before may have been removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INPUTS_BY_BATCH: Final = """
            select batch, count(*) as inputs
            from (
                select batch from events
                union all
                select batch from publish_results where outcome = 'failed'
            ) as came
            where batch >= {first} and batch <= {watermark}
            group by batch
"""
"""How many inputs each batch has: every one of them gets a decision."""


@dataclass(frozen=True)
class Promise:
    """A promise. breaches: the query."""

    name: str
    says: str
    breaches: str


PROMISES: Final = (
    Promise(
        "decided_once",
        "Every report, order and failed send has one decision.",
        """
        with

        inputs as (
            """
        + INPUTS_BY_BATCH
        + """
        ),

        decided as (
            select batch, count(*) as decisions, count(distinct input_id) as decided_inputs
            from decisions
            where batch >= {first} and batch <= {watermark}
            group by batch
        )

        select
            concat('batch ', batch) as subject,
            concat(coalesce(inputs, 0), ' inputs, ', coalesce(decisions, 0), ' decisions about ', coalesce(decided_inputs, 0)) as detail
        from inputs
        full outer join decided using (batch)
        where inputs is distinct from decisions or decisions is distinct from decided_inputs
        """,
    ),
    Promise(
        "within_policy",
        "No failure is followed by a retry when the attempts of its policy are used up.",
        """
        select message_id as subject, concat('a retry after ', attempt, ' of ', max_attempts, ' attempts, input ', input_id) as detail
        from decisions
        where
            decision = 'retry' and reason = error_kind and error_kind <> 'backpressure' and publish_attempt = 0
            and attempt >= max_attempts
            and batch >= {first} and batch <= {watermark}
        """,
    ),
    Promise(
        "nothing_vanished",
        "Every message that waits, or whose dead letter is pending, has a delivery that will be sent.",
        """
        select messages.message_id as subject, concat(messages.state, ', and delivery ', messages.delivery_id, ' is not open') as detail
        from messages
        left anti join ready on messages.delivery_id = ready.delivery_id and messages.due_at = ready.due_at
        left anti join publish_results as failed
            on
                messages.delivery_id = failed.delivery_id
                and failed.outcome = 'failed' and failed.batch > {watermark}
        where messages.state in ('waiting', 'dead_letter_pending')
        """,
    ),
    Promise(
        "never_early",
        "Nothing is sent before it is due.",
        """
        select delivery_id as subject, concat('sent ', unix_millis(due_at) - unix_millis(sent_at), ' ms before it was due') as detail
        from publish_results
        where outcome = 'delivered' and found_by is null and sent_at < due_at and batch >= {first} and batch <= {upto}
        """,
    ),
    Promise(
        "recorded_once",
        "No delivery has two results that say it was delivered.",
        """
        select delivery_id as subject, concat(count(*), ' results: ', array_join(sort_array(collect_list(
            concat(topic, '/', partition, '/', offset)
        )), ', ')) as detail
        from publish_results
        where outcome = 'delivered' and batch >= {first} and batch <= {upto}
        group by delivery_id, due_at
        having count(*) > 1
        """,
    ),
    Promise(
        "in_its_topic",
        "Everything that was delivered lies in its topic, where its result says.",
        """
        select
            results.delivery_id as subject,
            concat(results.kind, ': no such record at ', results.topic, '/', results.partition, '/', results.offset) as detail
        from publish_results as results
        left semi join verified_ranges as ranges
            on
                results.topic = ranges.topic and results.partition = ranges.partition
                and results.offset >= ranges.begin and results.offset < ranges.end
        left anti join verified_records as records
            on
                results.topic = records.topic and results.partition = records.partition and results.offset = records.offset
                and results.delivery_id = records.delivery_id
        where results.outcome = 'delivered' and results.batch >= {first} and results.batch <= {upto}
        """,
    ),
    Promise(
        "sent_once",
        "No delivery lies in the topics twice.",
        """
        select
            delivery_id as subject,
            concat(count(*), ' records: ', array_join(slice(sort_array(collect_list(
                concat(topic, '/', partition, '/', offset)
            )), 1, 5), ', ')) as detail
        from verified_records
        group by delivery_id, due_at
        having count(*) > 1
        """,
    ),
    Promise(
        "sent_and_recorded",
        "Every delivery that lies in a topic has a result, or a decision that answers it.",
        """
        with

        -- another installation may send to the same topic
        ours as (
            select records.* from verified_records as records
            left semi join deliveries on records.delivery_id = deliveries.delivery_id and records.due_at = deliveries.due_at
            union all
            select * from verified_records
            where delivery_id rlike r'{direct_ids}' and sent_at >= {kept_since}
        )

        select
            records.delivery_id as subject,
            concat('no result for ', records.topic, '/', records.partition, '/', records.offset) as detail
        from ours as records
        left anti join publish_results as results
            on records.delivery_id = results.delivery_id and records.due_at = results.due_at and results.outcome = 'delivered'
        left anti join deliveries as answers on records.delivery_id = answers.prior_delivery and records.due_at = answers.prior_due
        where records.sent_at < {recorded_until}
        """,
    ),
    Promise(
        "same_bytes",
        "Key, value and own headers of each record are those of its delivery.",
        """
        select
            records.delivery_id as subject,
            concat(
                if(records.content_hash = deliveries.content_hash, 'headers', 'key or value'),
                ' differ at ', records.topic, '/', records.partition, '/', records.offset
            ) as detail
        from verified_records as records
        inner join deliveries on records.delivery_id = deliveries.delivery_id and records.due_at = deliveries.due_at
        -- a dead letter may go out with less in it, and how much is not known of one that was read back
        left anti join publish_results as less
            on
                records.delivery_id = less.delivery_id and records.due_at = less.due_at
                and (less.omitted is not null or (less.found_by is not null and less.kind = 'dead_letter'))
        where
            -- null: dropped, purged, or kept in the row of the first dead letter
            deliveries.headers is not null and (deliveries.key is not null or deliveries.value is not null)
            and (
                records.content_hash <> deliveries.content_hash
                or slice(records.headers, 1, size(deliveries.headers)) is distinct from deliveries.headers
            )
        """,
    ),
)
