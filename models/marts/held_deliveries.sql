-- held_deliveries: what a gate holds: due, not sent, and not released yet.
{{ config(materialized='view') }}

with

decisions as (

    select * from {{ ref('decisions') }}

),

held as (

    select
        delivery_id,
        due_at,
        recorded_at
    from {{ ref('publish_results') }}
    where outcome = 'held'

),

answered as (

    {{ deliveries_answered(ref('deliveries')) }}

),

held_deliveries as (

    select
        decisions.gate,
        decisions.delivery_id,
        decisions.due_at,
        decisions.due_hour,
        decisions.message_id,
        held.recorded_at as held_at,
        decisions.first_failed_at,
        decisions.consumer_group,
        decisions.original_topic,
        decisions.original_partition,
        decisions.original_offset
    from held
    inner join decisions
        on
            held.delivery_id = decisions.delivery_id
            and held.due_at = decisions.due_at
    left anti join answered
        on
            held.delivery_id = answered.delivery_id
            and held.due_at = answered.due_at

)

select * from held_deliveries
