-- copies: where the last dead letter of each message lies.
{{ config(materialized='ephemeral', contract={'enforced': false}) }}

with

results as (

    select * from {{ ref('publish_results') }}
    where kind = 'dead_letter' and outcome = 'delivered'

),

lasts as (

    select
        message_id,
        max(struct(batch, delivery_id, due_at, topic, partition, offset, coalesce(sent_at, recorded_at) as sent_at, omitted)) as last_copy
    from results
    group by message_id

),

copies as (

    select
        message_id,
        last_copy.*
    from lasts

)

select * from copies
