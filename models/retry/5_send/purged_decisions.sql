-- purged_decisions: the decisions whose payload operators have purged: `redrive maintain` empties their rows.
{{ config(materialized='view') }}

with

deliveries as (

    select * from {{ ref('deliveries') }}

),

purges as (

    select * from {{ ref('purges') }}

)

select
    deliveries.input_id,
    deliveries.message_id,
    deliveries.batch,
    deliveries.decision,
    deliveries.delivery_id,
    deliveries.due_at,
    coalesce(deliveries.payload_bytes, 1) > 0 or deliveries.error_message is not null or deliveries.matched is not null as has_payload
from deliveries
inner join purges on deliveries.message_id = purges.message_id
where {{ is_purged('deliveries', 'purges') }}
