-- recoveries: retries and redrives that have been processed (the group has committed an offset beyond them, and reported no failure), and since when
-- that is known.
with

settled as (

    {{ settled_places() }}

),

sends as (

    {{ settled_sends() }}

),

placed as (

    select
        *,
        true as is_send,
        cast(null as timestamp) as seen_at
    from sends

    union all

    select
        cast(null as string) as delivery_id,
        cast(null as timestamp) as due_at,
        cast(null as timestamp) as sent_at,
        consumer_group,
        topic,
        partition,
        offset,
        cast(null as timestamp) as settled_at,
        false as is_send,
        recorded_at as seen_at
    from settled

),

passed as (

    -- Rows are in descending order of offset, a send before a settled offset equal to its own: so before a send come just the settled offsets beyond
    -- it. The send was passed when the first of them was seen. This sorts each partition once; a query without recovered_at skips the sort.
    select
        *,
        min(seen_at) over (
            partition by consumer_group, topic, partition
            order by offset desc, is_send desc
            rows between unbounded preceding and current row
        ) as passed_at
    from placed

),

recoveries as (

    select
        delivery_id,
        due_at,
        -- an offset passed before the send was one of a deleted topic of the same name: then only the time of the last settled offset is known
        min(case when passed_at >= sent_at then passed_at else settled_at end) as recovered_at
    from passed
    where is_send
    group by delivery_id, due_at

)

select * from recoveries
