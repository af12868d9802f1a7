-- recoveries: what was sent again, and is processed: its group has got beyond it, and reported no failure; and since when that is known.
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

    -- from the highest offset down, sends before the settled offset that equals theirs: what came so far is beyond them. One sort of each
    -- partition, and none where nobody asks for the time
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
        -- offsets of a topic that was created again were passed before: then it is only known that it happened by the last look
        min(case when passed_at >= sent_at then passed_at else settled_at end) as recovered_at
    from passed
    where is_send
    group by delivery_id, due_at

)

select * from recoveries
