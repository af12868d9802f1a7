-- settled_offsets: how far each group is known to have got with what was sent to it: processed, and not reported as failed since.
{{ config(materialized='view') }}

with

ticks as (

    select * from {{ ref('ticks') }}
    where settled is not null

),

settled as (

    select
        batch,
        recorded_at,
        explode(settled) as settled
    from ticks

),

settled_offsets as (

    -- the last word, not the highest: a topic that was created again begins anew
    select
        settled.consumer_group,
        settled.topic,
        settled.partition,
        max_by(settled.offset, batch) as offset,
        max(recorded_at) as settled_at
    from settled
    group by settled.consumer_group, settled.topic, settled.partition

)

select * from settled_offsets
