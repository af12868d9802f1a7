-- messages_known: what is already on record about the original coordinates that this fold's inputs name. Grain: one row per coordinates and group.
with

deliveries as (

    select * from {{ wheel() }}
    where
        (kind is not null or decision in ('adopted', 'parked', 'dropped', 'cancelled'))
        and {{ coordinates_in_bounds('original_topic', 'original_offset', fold_bounds().origin) }}

),

closing_results as (

    select
        delivery_id,
        due_at,
        min(batch) as closed_batch
    from {{ ref('publish_results') }}
    where
        -- what is held was not sent: nobody can have failed on it
        outcome in {{ closing_outcomes() }} and outcome <> 'held'
        and {{ coordinates_in_bounds('original_topic', 'original_offset', fold_bounds().origin) }}
    group by delivery_id, due_at

),

last_deliveries as (

    select
        message_id,
        any_value({{ message_id('consumer_group', 'original_topic', 'original_partition', 'original_offset') }}) as plain_id,
        any_value(content_hash) as content_hash,
        max(life) as life,
        max(happened_at) as last_happened_at,
        max_by({{ answered_delivery('deliveries') }}, struct(batch, due_at, cause)) as last_delivery,
        -- what was dropped, cancelled, adopted or parked has nothing to wait for
        max_by(case when decision in ('dropped', 'cancelled', 'adopted', 'parked') then batch end, struct(batch, due_at, cause)) as dropped_batch
    from deliveries
    group by message_id

),

known as (

    select
        last_deliveries.plain_id,
        -- the content that was seen first there owns the plain id
        max(case when last_deliveries.message_id = last_deliveries.plain_id then last_deliveries.content_hash end) as content_hash,
        map_from_entries(collect_list(struct(
            last_deliveries.message_id,
            struct(
                last_deliveries.life,
                -- a failure that happened before this is one that we have been told about
                greatest(last_deliveries.last_happened_at, last_deliveries.last_delivery.due_at) as quiet_until,
                coalesce(closing_results.closed_batch, last_deliveries.dropped_batch) as closed_batch,
                last_deliveries.last_delivery
            )
        ))) as messages
    from last_deliveries
    left join closing_results
        on
            last_deliveries.last_delivery.delivery_id = closing_results.delivery_id
            and last_deliveries.last_delivery.due_at = closing_results.due_at
    group by last_deliveries.plain_id

)

select * from known
