-- recoveries: retries and redrives that have been processed: the group has committed an offset beyond them, and reported no failure; and since when
-- that is known.
with

results as (

    select * from {{ ref('publish_results') }}
    where outcome = 'delivered' and kind <> 'dead_letter'

),

settled_offsets as (

    select * from {{ ref('settled_offsets') }}

),

settled as (

    {{ settled_places() }}

),

sends as (

    select
        results.delivery_id,
        results.due_at,
        results.sent_at,
        results.consumer_group,
        results.topic,
        results.partition,
        results.offset,
        settled_offsets.settled_at
    from results
    inner join settled_offsets
        on
            results.consumer_group = settled_offsets.consumer_group
            and results.topic = settled_offsets.topic
            and results.partition = settled_offsets.partition
            and results.offset < settled_offsets.offset
            and results.sent_at <= settled_offsets.settled_at

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

    -- By descending offset, a send before a settled offset equal to its own: the settled offsets up to a row are those beyond it, and the earliest of
    -- them passed it. This sorts each partition once; a query that doesn't select the time skips it.
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
        -- an offset that was passed before the send is one of a deleted topic of that name: then only the time of the last settled offset is known
        min(case when passed_at >= sent_at then passed_at else settled_at end) as recovered_at
    from passed
    where is_send
    group by delivery_id, due_at

)

select * from recoveries
