-- purges_known: what operators have purged of the messages that this run's inputs name by their original coordinates.
with

purged as (

    {%- set if_redriven = "decision = 'purged' and " ~ slot('are_redriven', 'false') %}

    -- read only where something is redriven
    {{ decided_at_origins(if_redriven) }}

)

select
    message_id,
    collect_set(struct(life_cycle, due_at)) as reach
from purged
group by message_id
