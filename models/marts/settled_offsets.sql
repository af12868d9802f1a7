-- settled_offsets: how far each group is known to have got with what was sent to it: processed, and not reported as failed since.
with

settled as (

    {{ settled_places() }}

),

settled_offsets as (

    -- the last word, not the highest: a topic that was created again begins anew
    select
        consumer_group,
        topic,
        partition,
        max_by(offset, batch) as offset,
        max(recorded_at) as settled_at
    from settled
    group by consumer_group, topic, partition

)

select * from settled_offsets
