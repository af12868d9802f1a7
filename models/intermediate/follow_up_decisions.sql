-- follow_up_decisions: by message, what was decided after its first life cycle, or for an operator.
with

decisions as (

    -- few rows: most row groups are skipped. A decision may have two rows (see first_runs): below, only maxima are taken
    select * from {{ ref('deliveries') }}
    where life_cycle > 1 or decision = 'redrive' or decision in {{ operator_decisions() }}

),

follow_up_decisions as (

    select
        message_id,
        -- a redrive that was refused, or is a duplicate, begins no life cycle
        max(case when decision not in ('refused', 'duplicate') then life_cycle end) as life_cycles,
        max(case when decision in {{ decisions_where(succeeds='yes') }} then batch end) as tried_batch,
        max_by(struct(delivery_id, due_at), case when decision in {{ decisions_where(succeeds='yes') }} then batch end) as last_try,
        max_by(struct(batch, decision, prior_delivery), {{ input_order() }}) filter (where decision in ('discarded', 'restored')) as last_annotation
    from decisions
    group by message_id

)

select * from follow_up_decisions
