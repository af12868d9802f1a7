-- recoveries: what was sent again, and is processed: its group has got beyond it, and reported no failure.
{{ config(materialized='ephemeral', contract={'enforced': false}) }}

with

results as (

    select * from {{ ref('publish_results') }}
    where outcome = 'delivered' and kind <> 'dead_letter'

),

settled_offsets as (

    select * from {{ ref('settled_offsets') }}

),

recoveries as (

    select distinct
        results.delivery_id,
        results.due_at
    from results
    inner join settled_offsets
        on
            results.consumer_group = settled_offsets.consumer_group
            and results.topic = settled_offsets.topic
            and results.partition = settled_offsets.partition
            and results.offset < settled_offsets.offset
            and results.sent_at <= settled_offsets.settled_at

)

select * from recoveries
