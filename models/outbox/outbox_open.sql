-- outbox_open: the rows of outboxes that are to be published and are not published yet, nor dead, each once.
-- The view reads no clock. Readers must restrict due_at and due_hour.
{{ config(materialized='view', contract={'enforced': true}) }}

with

deliveries as (

    select * from {{ ref('deliveries') }}
    where kind = 'publish'

),

first_runs as (

    {{ first_runs('deliveries') }}

),

published as (

    select
        delivery_id,
        due_at
    from {{ ref('publish_results') }}
    where kind = 'publish' and outcome = 'delivered'

),

answered as (

    {{ deliveries_answered(ref('deliveries')) }}

)

select
    deliveries.delivery_id,
    deliveries.due_at,
    deliveries.due_hour,
    deliveries.topic,
    deliveries.sequence,
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
