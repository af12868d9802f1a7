-- copies: where the last dead letter of each message lies: where we sent it, or where it was adopted; nowhere, where it was parked.
with

results as (

    select * from {{ ref('publish_results') }}
    where kind = 'dead_letter' and outcome = 'delivered'

),

adopted as (

    -- whether a decision is there once or twice, its copy lies in the same place
    select * from {{ ref('deliveries') }}
    where decision = 'adopted'

),

parked as (

    select * from {{ ref('deliveries') }}
    where decision = 'parked'

),

gathered as (

    select
        message_id,
        struct(batch, delivery_id, due_at, topic, partition, offset, coalesce(sent_at, recorded_at) as sent_at, omitted) as copy
    from results

    union all

    select
        message_id,
        struct(
            batch, delivery_id, due_at, report_topic as topic, report_partition as partition, report_offset as offset,
            -- whoever wrote it did so when it failed
            failed_at as sent_at, cast(null as string) as omitted
        ) as copy
    from adopted

    union all

    select
        message_id,
        struct(
            batch, delivery_id, due_at, cast(null as string) as topic, cast(null as int) as partition, cast(null as bigint) as offset,
            recorded_at as sent_at, cast(null as string) as omitted
        ) as copy
    from parked

),

lasts as (

    select
        message_id,
        max(copy) as last_copy
    from gathered
    group by message_id

),

copies as (

    select
        message_id,
        last_copy.*
    from lasts

)

select * from copies
