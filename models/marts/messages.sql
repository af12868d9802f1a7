-- messages: the state of every message, by its last decision that changed it (last_decisions) and the result of that decision's delivery.
with

last_decisions as (

    select * from {{ ref('last_decisions') }}

),

results as (

    select * from {{ ref('last_results') }}

),

recoveries as (

    select * from {{ ref('recoveries') }}

),

rows_published_again as (

    select * from {{ ref('rows_published_again') }}

),

messages as (

    select
        ---------- which
        last_decisions.message_id,

        ---------- where it stands
        case
            when rows_published_again.batch > last_decisions.batch then 'sent'
            when last_decisions.decision in ('dropped', 'cancelled') then last_decisions.decision
            when last_decisions.decision in ('adopted', 'parked') then 'dead'
            when last_decisions.decision = 'follows' then 'following'
            when last_decisions.kind is null then 'refused'
            when last_decisions.kind = 'dead_letter' and coalesce(results.outcome = 'delivered', false) then 'dead'
            when last_decisions.kind = 'dead_letter' then 'dead_letter_pending'
            when recoveries.delivery_id is not null then 'recovered'
            when coalesce(results.outcome = 'delivered', false) then 'sent'
            when coalesce(results.outcome = 'held', false) then 'held'
            else 'waiting'
        end as state,
        last_decisions.reason,
        last_decisions.life_cycle,
        last_decisions.attempt as attempts,
        last_decisions.max_attempts,
        last_decisions.first_failed_at,
        last_decisions.failed_at as last_failed_at,
        case
            when rows_published_again.batch > last_decisions.batch then null
            when last_decisions.kind is not null and not coalesce(results.outcome = 'delivered', false)
                and not coalesce(results.outcome = 'held', false)
                then greatest(last_decisions.due_at, results.not_before)
        end as next_due,
        recoveries.recovered_at,
        last_decisions.error_class,
        last_decisions.error_kind,

        ---------- where it came from
        last_decisions.consumer_group,
        last_decisions.original_topic,
        last_decisions.original_partition,
        last_decisions.original_offset,
        last_decisions.sequence,
        last_decisions.source,
        last_decisions.delivery_id,
        last_decisions.due_at
    from last_decisions
    left join results
        on
            last_decisions.delivery_id = results.delivery_id
            and last_decisions.due_at = results.due_at
    left join recoveries
        on
            last_decisions.delivery_id = recoveries.delivery_id
            and last_decisions.due_at = recoveries.due_at
    left join rows_published_again on last_decisions.message_id = rows_published_again.message_id

)

select * from messages
