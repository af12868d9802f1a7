-- answers_found: which of our deliveries an input answers, at most one. Headers are only a pointer: what counts is the row in our table.
with

inputs as (

    select * from {{ in_session('inputs_gathered') }}

),

delivered as (

    select
        delivery_id,
        due_at,
        topic,
        partition,
        offset,
        batch
    from {{ ref('publish_results') }}
    where outcome = 'delivered' and {{ coordinates_in_bounds('topic', 'offset', fold_bounds().named) }}

),

deliveries as (

    select * from {{ wheel() }}
    where kind is not null and {{ dues_in_bounds('due_at') }}

),

pointers as (

    -- the report says so itself, or the input is our own result
    select
        cause,
        pointer_delivery as delivery_id,
        pointer_due as due_at,
        case when input_kind = 'failed_send' then 1 else 2 end as preference,
        cast(null as bigint) as result_batch,
        named_topic,
        named_partition,
        named_offset,
        consumer_group,
        content_hash
    from inputs
    where pointer_delivery is not null and pointer_due is not null

    union all

    -- frameworks that drop headers: we know what we put there
    select
        inputs.cause,
        delivered.delivery_id,
        delivered.due_at,
        3 as preference,
        delivered.batch as result_batch,
        inputs.named_topic,
        inputs.named_partition,
        inputs.named_offset,
        inputs.consumer_group,
        inputs.content_hash
    from inputs
    inner join delivered
        on
            inputs.named_topic = delivered.topic
            and inputs.named_partition = delivered.partition
            and inputs.named_offset = delivered.offset
            and inputs.batch > delivered.batch
    where inputs.input_kind = 'report'

),

verified as (

    select
        pointers.cause as input_cause,
        deliveries.*,
        -- copies from a repeated fold are identical: any of them will do
        row_number() over (
            partition by pointers.cause order by pointers.preference asc, pointers.result_batch desc
        ) as choice
    from pointers
    inner join deliveries
        on
            pointers.delivery_id = deliveries.delivery_id
            and pointers.due_at = deliveries.due_at
    where
        pointers.preference = 1
        or (
            -- same content, and no other group's message
            pointers.content_hash = deliveries.content_hash
            and coalesce(pointers.consumer_group = deliveries.consumer_group, true)
            and (
                pointers.preference = 3
                -- the report names where the delivery went
                or pointers.named_topic = deliveries.topic
                -- or the original coordinates that it carried
                or (
                    pointers.named_topic = deliveries.original_topic
                    and pointers.named_partition = deliveries.original_partition
                    and pointers.named_offset = deliveries.original_offset
                )
            )
        )

),

found as (

    select
        input_cause as cause,
        struct(
            delivery_id,
            due_at,
            kind,
            message_id,
            life,
            attempt,
            publish_attempt,
            original_topic,
            original_partition,
            original_offset,
            original_timestamp,
            consumer_group,
            content_hash,
            headers,
            topic,
            partition,
            source,
            first_failed_at,
            failed_at,
            error_class,
            error_message,
            error_stack,
            error_kind,
            rule
        ) as answered
    from verified
    where choice = 1

)

select * from found
