-- purges: the messages that operators have purged, and what each purge reaches (see is_purged). `decisions` no longer shows their payloads, and
-- `redrive maintain` removes them from the tables.
{{ config(materialized='view') }}

with

purged as (

    select * from {{ ref('deliveries') }}
    where decision = 'purged'

),

purges as (

    select
        message_id,
        collect_set(struct(life_cycle, batch)) as reach,
        max_by(recorded_at, struct(life_cycle, -batch)) as purged_at
    from purged
    group by message_id

)

select * from purges
