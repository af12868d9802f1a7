-- purges_known: what operators have purged of the messages that this run's inputs name by their original coordinates.
with

inputs as (

    select
        origin_topic,
        origin_partition,
        origin_offset
    from {{ ref('inputs_gathered') }}

),

deliveries as (

    select * from {{ wheel() }} as deliveries
    left semi join inputs
        on
            deliveries.original_topic = inputs.origin_topic
            and deliveries.original_partition = inputs.origin_partition
            and deliveries.original_offset = inputs.origin_offset
    -- read only where something is redriven
    where decision = 'purged' and {{ slot('are_redriven', 'false') }} and {{ slot('origin', 'false') }}

)

select
    message_id,
    collect_set(struct(life_cycle, due_at)) as reach
from deliveries
group by message_id
