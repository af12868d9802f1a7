-- purges: the messages that operators have purged, and up to which life cycle. `decisions` no longer shows their payloads, and `redrive maintain`
-- removes them from the tables.
{{ config(materialized='view') }}

with

purged as (

    select * from {{ ref('deliveries') }}
    where decision = 'purged'

),

purges as (

    select
        message_id,
        max(life_cycle) as life_cycle,
        max_by(recorded_at, struct(life_cycle, -batch)) as purged_at
    from purged
    group by message_id

)

select * from purges
