-- outbox_states: what is to be written back into outboxes: what became of their rows, as events, decisions and results say it. Several rows may be about
-- one row of an outbox: the last one by (batch, place) counts, column by column. The loop restricts batch, for decisions to others than for the rest.
{{ config(materialized='view', contract={'enforced': true}) }}

with

taken as (

    select
        source as outbox,
        detail as row_id,
        batch,
        0 as place,
        'processing' as status,
        cast(null as int) as attempts,
        cast(null as timestamp) as next_retry_at,
        cast(null as timestamp) as processed_at,
        cast(null as string) as last_error
    from {{ ref('events') }}
    where kind = 'row'

),

decided as (

    select
        source as outbox,
        outbox_row as row_id,
        batch,
        1 as place,
        case
            -- dead only when Kafka has its dead letter
            when kind = 'dead_letter' then 'failed'
            when kind is null then 'dead'
            when prior_delivery is null or decision = 'redrive' then 'processing'
            else 'failed'
        end as status,
        attempt as attempts,
        case when kind = 'publish' and prior_delivery is not null and decision <> 'redrive' then due_at end as next_retry_at,
        cast(null as timestamp) as processed_at,
        coalesce(error_message, error_class, case when kind is null then reason end) as last_error
    from {{ ref('deliveries') }}
    where
        outbox_row is not null and decision not in {{ operator_decisions() }} and decision <> 'duplicate'
        -- an order that is refused changes nothing
        and not (decision = 'refused' and input_id like 'loop/%')

),

sent as (

    select
        split_part(substr(message_id, 8), '/', 1) as outbox,
        substr(message_id, 8 + locate('/', substr(message_id, 8))) as row_id,
        batch,
        2 as place,
        case kind when 'publish' then 'done' else 'dead' end as status,
        cast(null as int) as attempts,
        cast(null as timestamp) as next_retry_at,
        case kind when 'publish' then sent_at end as processed_at,
        cast(null as string) as last_error
    from {{ ref('publish_results') }}
    where outcome = 'delivered' and message_id like 'outbox:%' and kind in ('publish', 'dead_letter') and consumer_group is null

),

states as (

    select * from taken
    union all
    select * from decided
    union all
    select * from sent

)

select * from states
