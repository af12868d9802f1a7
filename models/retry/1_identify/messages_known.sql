-- messages_known: what is already on record about the original coordinates that this run's inputs name. Grain: one row per coordinates and group.

with

deliveries as (

    {%- set sends_or_ends = "kind is not null or decision in " ~ decisions_where(succeeds='yes', sends='') %}

    {{ decided_at_origins(sends_or_ends) }}

),

closing_results as (

    select
        delivery_id,
        due_at,
        batch
    from {{ ref('publish_results') }}
    where
        -- a delivery that is held was not sent: no consumer can have failed to process it
        outcome in {{ closing_outcomes() }} and outcome <> 'held' and {{ slot('origin', 'false') }}

),

last_deliveries as (

    select
        message_id,
        any_value({{ message_id('consumer_group', 'original_topic', 'original_partition', 'original_offset') }}) as plain_id,
        any_value(content_hash) as content_hash,
        max(life_cycle) as life_cycle,
        max(happened_at) as last_happened_at,
        max_by({{ answered_delivery('deliveries') }}, struct(batch, due_at, input_id)) as last_delivery,
        max_by(decision = 'adopted', struct(batch, due_at, input_id)) as is_adopted,
        -- for a message that was dropped, cancelled, adopted or parked there is no result: the decision itself closes it
        max_by(
            case when decision in {{ decisions_where(succeeds='yes', sends='') }} then batch end,
            struct(batch, due_at, input_id)
        ) as unsent_batch
    from deliveries
    group by message_id

),

closed as (

    select
        last_deliveries.message_id,
        any_value(last_deliveries.plain_id) as plain_id,
        any_value(last_deliveries.content_hash) as content_hash,
        any_value(last_deliveries.life_cycle) as life_cycle,
        any_value(last_deliveries.last_happened_at) as last_happened_at,
        any_value(last_deliveries.last_delivery) as last_delivery,
        any_value(last_deliveries.unsent_batch) as unsent_batch,
        any_value(last_deliveries.is_adopted) as is_adopted,
        min(closing_results.batch) as closed_batch
    from last_deliveries
    left join closing_results
        on
            last_deliveries.last_delivery.delivery_id = closing_results.delivery_id
            and last_deliveries.last_delivery.due_at = closing_results.due_at
    group by last_deliveries.message_id

),

known as (

    select
        plain_id,
        -- the content that was seen first at these coordinates has the id without a hash
        max(case when message_id = plain_id then content_hash end) as content_hash,
        map_from_entries(collect_list(struct(
            message_id,
            struct(
                life_cycle,
                -- a report of a failure at or before this moment repeats an old one
                greatest(
                    last_happened_at,
                    -- what is adopted was not sent then: it may have died, and failed again, long before
                    case when not is_adopted then last_delivery.due_at end
                ) as quiet_until,
                coalesce(closed_batch, unsent_batch) as closed_batch,
                last_delivery
            )
        ))) as messages
    from closed
    group by plain_id

)

select * from known
