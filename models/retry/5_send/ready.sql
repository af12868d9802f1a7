-- ready: the deliveries that may be sent once they are due. The publisher gets the columns that publisher/contract.py lists, the loop the others.
-- The view reads no clock. Readers must restrict due_at to [floor, now], due_hour to the hours of both, and not_before to now, as literals, so that
-- only the hours of the wheel that are due are read; and, for rows that are written again, also payload_due and payload_hour.
{{ config(materialized='view', contract={'enforced': true}) }}

with

deliveries as (

    select * from {{ ref('deliveries') }}
    where kind is not null

),

first_runs as (

    {{ first_runs('deliveries') }}

),

waiting as (

    select * from {{ ref('deliveries_open') }}

),

first_letters as (

    select deliveries.*
    from deliveries
    left semi join first_runs
        on
            deliveries.batch = first_runs.batch
            and deliveries.due_hour = first_runs.due_hour
            and deliveries.decide_run = first_runs.decide_run
    where deliveries.kind = 'dead_letter' and deliveries.payload_due is null

),

complete as (

    select
        *,
        false as is_written_again,
        cast(null as timestamp) as payload_hour
    from waiting
    where payload_due is null

    union all

    -- a dead letter that is written again, as Kafka refused it: its payload is in the row of the first
    select
        waiting.* except (error_stack, key, value, headers, by_reference, not_before),
        first_letters.error_stack,
        first_letters.key,
        first_letters.value,
        first_letters.headers,
        first_letters.by_reference,
        waiting.not_before,
        true as is_written_again,
        first_letters.due_hour as payload_hour
    from waiting
    inner join first_letters
        on
            waiting.payload_delivery = first_letters.delivery_id
            and waiting.payload_due = first_letters.due_at
    where waiting.payload_due is not null

)

select
    ---------- which
    delivery_id,
    due_at,
    due_hour,
    batch,
    kind,
    message_id,

    ---------- where it goes
    topic,
    partition,

    ---------- what goes: the message as it came, and what is added to it
    key,
    value,
    headers,
    by_reference,
    case when by_reference and kind = 'dead_letter' then {{ headers_left_out() }} end as denied_headers,
    {{ dead_letter_headers() }} as dead_letter_headers,
    header_profile,
    -- the attempt that a retry starts; for a dead letter, the last attempt that was made
    case when kind = 'dead_letter' then attempt when kind <> 'publish' then attempt + 1 end as attempt,
    publish_charge,
    {{ sending_order('complete') }} as sequence,
    sequence_place,
    case when kind in ('retry', 'redrive') then sequence end as sequence_id,
    sequence_epoch,
    payload_bytes,
    breaker_key,
    decision,
    happened_at,
    first_failed_at,

    ---------- where the message came from
    -- what an outbox publishes is itself an original record, and names no other
    consumer_group,
    case when kind <> 'publish' then original_topic end as original_topic,
    original_partition,
    original_offset,
    original_timestamp,

    ---------- when, if not at once
    not_before,

    ---------- where its payload lies, if not here
    is_written_again,
    payload_due,
    payload_hour
from complete
