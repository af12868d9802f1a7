-- stranded_states: messages that died and messages that are refused, each with its state (what was done about it since) and operators' annotations.
-- Longer than other models, as its two halves must have the same columns.
with

dead_letter_decisions as (

    select * from {{ ref('dead_letter_decisions') }}

),

delivered_dead_letters as (

    select * from {{ ref('delivered_dead_letters') }}

),

follow_up_decisions as (

    select * from {{ ref('follow_up_decisions') }}

),

refusals as (

    select * from {{ ref('refusals') }}

),

latest_annotations as (

    select * from {{ ref('latest_annotations') }}

),

purges as (

    select * from {{ ref('purges') }}

),

recoveries as (

    select * from {{ ref('recoveries') }}

),

rows_published_again as (

    select * from {{ ref('rows_published_again') }}

),

dead as (

    select
        dead_letter_decisions.* except (topic, partition),
        delivered_dead_letters.topic,
        delivered_dead_letters.partition,
        delivered_dead_letters.offset,
        delivered_dead_letters.sent_at as dead_at,
        delivered_dead_letters.omitted,
        greatest(dead_letter_decisions.life_cycle, follow_up_decisions.life_cycles) as life_cycles,
        case
            when follow_up_decisions.last_annotation.prior_delivery = dead_letter_decisions.delivery_id
                and follow_up_decisions.last_annotation.decision = 'discarded'
                and follow_up_decisions.last_annotation.batch > coalesce(follow_up_decisions.tried_batch, -1)
                then 'discarded'
            when follow_up_decisions.tried_batch > dead_letter_decisions.batch and recoveries.delivery_id is not null then 'recovered'
            when follow_up_decisions.tried_batch > dead_letter_decisions.batch then 'redriven'
            when rows_published_again.batch > dead_letter_decisions.batch then 'redriven'
            else 'open'
        end as state,
        case when follow_up_decisions.tried_batch > dead_letter_decisions.batch then recoveries.recovered_at end as recovered_at
    from dead_letter_decisions
    inner join delivered_dead_letters
        on
            dead_letter_decisions.message_id = delivered_dead_letters.message_id
            and dead_letter_decisions.delivery_id = delivered_dead_letters.delivery_id
            and dead_letter_decisions.due_at = delivered_dead_letters.due_at
    left join follow_up_decisions on dead_letter_decisions.message_id = follow_up_decisions.message_id
    left join rows_published_again on dead_letter_decisions.message_id = rows_published_again.message_id
    left join recoveries
        on
            follow_up_decisions.last_try.delivery_id = recoveries.delivery_id
            and follow_up_decisions.last_try.due_at = recoveries.due_at

),

refused as (

    select
        refusals.* except (topic, partition),
        cast(null as string) as topic,
        cast(null as int) as partition,
        cast(null as bigint) as offset,
        refusals.recorded_at as dead_at,
        cast(null as string) as omitted,
        greatest(refusals.life_cycle, follow_up_decisions.life_cycles) as life_cycles,
        case
            when follow_up_decisions.last_annotation.prior_delivery = refusals.delivery_id and follow_up_decisions.last_annotation.decision = 'discarded'
                then 'discarded'
            else 'refused'
        end as state,
        cast(null as timestamp) as recovered_at
    from refusals
    left join follow_up_decisions on refusals.message_id = follow_up_decisions.message_id

),

stranded as (

    -- `union all` goes by position: both have the columns of `decisions` but topic and partition, then the same ones in the same order
    select * from dead
    union all
    select * from refused

)

select
    stranded.*,
    latest_annotations.note,
    latest_annotations.ticket,
    case when {{ is_purged('stranded', 'purges') }} then purges.purged_at end as purged_at
from stranded
left join latest_annotations on stranded.message_id = latest_annotations.message_id
left join purges on stranded.message_id = purges.message_id
