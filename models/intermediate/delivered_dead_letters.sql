-- delivered_dead_letters: where the last dead letter of each message lies: where it was sent, or where it was adopted from; nulls if it was parked.
with

results as (

    select * from {{ ref('publish_results') }}
    where kind = 'dead_letter' and outcome = 'delivered'

),

unsent as (

    -- dead without a send. A decision may have two rows (see first_runs), but both have the same coordinates
    select
        *,
        decision = 'adopted' as is_adopted
    from {{ ref('deliveries') }}
    where decision in ('adopted', 'parked')

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
            batch,
            delivery_id,
            due_at,
            case when is_adopted then report_topic end as topic,
            case when is_adopted then report_partition end as partition,
            case when is_adopted then report_offset end as offset,
            -- when an adopted dead letter was written is unknown: the time of its failure stands for it
            case when is_adopted then failed_at else recorded_at end as sent_at,
            cast(null as string) as omitted
        ) as copy
    from unsent

),

lasts as (

    select
        message_id,
        max(copy) as last_copy
    from gathered
    group by message_id

),

delivered_dead_letters as (

    select
        message_id,
        last_copy.*
    from lasts

)

select * from delivered_dead_letters
