-- attempts_counted: how many failures each message has now. A delivery has one successor: whatever answers it again charges nothing.
with

inputs as (

    select * from {{ ref('errors_classified') }}

),

deliveries as (

    select * from {{ wheel() }}
    where decision in {{ succeeding_decisions() }} and {{ dues_in_bounds('prior_due') }}

),

answered_before as (

    select distinct
        prior_delivery,
        prior_due
    from deliveries

),

ordered as (

    select
        inputs.*,
        answered_before.prior_delivery is not null as is_answered,
        row_number() over (
            -- what is only said about a dead letter takes nobody's turn
            partition by
                inputs.standing, inputs.input_kind in {{ order_kinds('annotate') }},
                coalesce(inputs.answered.delivery_id, inputs.cause), inputs.answered.due_at
            order by
                inputs.batch,
                case when inputs.input_kind = 'report' then 0 else 1 end,
                inputs.report_topic, inputs.report_partition, inputs.report_offset, inputs.report_index
        ) as turn
    from inputs
    left join answered_before
        on
            inputs.answered.delivery_id = answered_before.prior_delivery
            and inputs.answered.due_at = answered_before.prior_due

),

judged as (

    select
        * except (is_answered, turn, standing),
        case
            when standing = 'answer' and input_kind in {{ order_kinds('annotate') }} then standing
            when standing = 'answer' and (is_answered or turn > 1) then 'answered_already'
            else standing
        end as standing
    from ordered

),

counted as (

    select
        *,
        -- a send that failed is no attempt at processing, nor is one that was turned away for want of room
        case
            -- a redrive begins anew
            when standing = 'answer' and input_kind = 'redrive' then 0
            when standing = 'answer' and input_kind <> 'report' then answered.attempt
            when standing in ('answer', 'first', 'new_life', 'orphan', 'unreadable')
                then coalesce(answered.attempt, 0) + case when error_kind = 'backpressure' then 0 else 1 end
        end as attempt,
        case
            when standing = 'answer' and input_kind = 'failed_send'
                then answered.publish_attempt + case when error_kind = 'backpressure' then 0 else 1 end
            when standing = 'answer' and input_kind not in ('report', 'redrive') then answered.publish_attempt
            else 0
        end as publish_attempt
    from judged

)

select * from counted
