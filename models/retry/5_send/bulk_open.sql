-- bulk_open: what the bulk lane alone sends, and has not sent yet: rows of outboxes, and followers that are sent after the message before them. Each
-- once, due or not.
-- The view reads no clock. Readers must restrict due_at and due_hour.
{{ config(materialized='view', contract={'enforced': true}) }}

with

deliveries as (

    select * from {{ ref('deliveries') }}
    where kind = 'publish' or (kind in ('retry', 'redrive') and sequence_place is not null)

),

first_runs as (

    {{ first_runs('deliveries') }}

),

published as (

    select
        delivery_id,
        due_at
    from {{ ref('publish_results') }}
    where kind <> 'dead_letter' and outcome = 'delivered'

),

answered as (

    {{ deliveries_answered(ref('deliveries')) }}

)

select
    deliveries.delivery_id,
    deliveries.due_at,
    deliveries.due_hour,
    deliveries.topic,
    {{ sending_order('deliveries') }} as sequence,
    deliveries.sequence_place
from deliveries
left semi join first_runs
    on
        deliveries.batch = first_runs.batch
        and deliveries.due_hour = first_runs.due_hour
        and deliveries.decide_run = first_runs.decide_run
left anti join published
    on
        deliveries.delivery_id = published.delivery_id
        and deliveries.due_at = published.due_at
left anti join answered
    on
        deliveries.delivery_id = answered.delivery_id
        and deliveries.due_at = answered.due_at
