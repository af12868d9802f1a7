-- settled_offsets: up to which offset each group has tried the retries that were sent to it; the failures among them are decided.
with

settled as (

    {{ settled_places() }}

),

settled_offsets as (

    -- the last offset, not the highest: a topic that was deleted and created again begins at 0
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
