-- answers_found: the delivery that each input answers, if any. The headers of a report only point to one: the pointer is used if the table
-- `deliveries` has that delivery, and it fits the report.
with

inputs as (

    select * from {{ ref('inputs_gathered') }}
    where input_kind <> 'row'

),

delivered as (

    -- the deliveries that lie at the named coordinates: several, if the topic was deleted and created again
    select
        topic,
        partition,
        offset,
        delivery_id,
        due_at,
        batch
    from {{ ref('publish_results') }}
    where outcome = 'delivered' and {{ slot('named', 'false') }}

),

deliveries as (

    select * from {{ wheel() }}
    where delivery_id is not null and {{ dues_in_bounds('due_at') }}

),

pointers as (

    -- candidates for each input, of two kinds. The first: the delivery that the input names, by a report's headers, or as an order or a failed send.
    -- The second: the delivery that publish_results has at the named coordinates, because frameworks may drop headers
    select
        inputs.*,
        delivered.batch as delivered_batch,
        explode_outer(array_compact(array(
            case
                when inputs.pointer_delivery is not null and inputs.pointer_due is not null
                    then struct(1 as preference, inputs.pointer_delivery as delivery_id, inputs.pointer_due as due_at)
            end,
            case
                when delivered.delivery_id is not null
                    then struct(2 as preference, delivered.delivery_id, delivered.due_at)
            end
        ))) as pointer
    from inputs
    left join delivered
        on
            inputs.named_topic = delivered.topic
            and inputs.named_partition = delivered.partition
            and inputs.named_offset = delivered.offset
            -- only results of earlier batches: otherwise the decision would depend on which batches are decided together
            and inputs.batch > delivered.batch

),

verified as (

    select
        pointers.*,
        case
            when deliveries.delivery_id is not null
                then {{ answered_delivery('deliveries') }}
        end as answered
    from pointers
    left join deliveries
        on
            pointers.pointer.delivery_id = deliveries.delivery_id
            and pointers.pointer.due_at = deliveries.due_at
            and (
                pointers.input_kind <> 'report'
                or (
                    -- a report can only answer a delivery that sends something, with the same content (null: by reference), not to another group
                    deliveries.kind is not null
                    -- what an outbox publishes is an original record: each group that fails to process it has a message of its own
                    and deliveries.kind <> 'publish'
                    and coalesce(pointers.content_hash = deliveries.content_hash, true)
                    and coalesce(pointers.consumer_group = deliveries.consumer_group, true)
                    and (
                        pointers.pointer.preference = 2
                        -- the report names where the delivery went
                        or pointers.named_topic = deliveries.topic
                        -- or the original coordinates that it carried
                        or (
                            pointers.named_topic = deliveries.original_topic
                            -- null on both sides where the dialect of the first report told no place
                            and pointers.named_partition <=> deliveries.original_partition
                            and pointers.named_offset <=> deliveries.original_offset
                        )
                    )
                )
            )

),

ranked as (

    select
        *,
        row_number() over (
            partition by input_id
            order by case when answered is null then 1 else 0 end asc, pointer.preference asc, delivered_batch desc
        ) as choice
    from verified

),

found as (

    select * except (choice, pointer, pointer_delivery, pointer_due, delivered_batch) from ranked
    where choice = 1

)

select * from found
