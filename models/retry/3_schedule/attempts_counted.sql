-- attempts_counted: counts the failures of each message. An answer to a delivery that has a successor, or whose message has begun anew, charges
-- nothing. Only successors of earlier runs are seen here: which input of this run is the successor depends on the decisions: see turns_taken.
{%- set before_this %}
    partition by standing, coalesce(answered.delivery_id, input_id), answered.due_at
    order by batch, report_topic, report_partition, report_offset, report_index
    rows between unbounded preceding and 1 preceding
{%- endset %}

with

inputs as (

    select * from {{ ref('errors_classified') }}

),

answered_before as (

    select
        prior_delivery,
        prior_due,
        max(decision in {{ decisions_where(succeeds='yes') }}) as is_answered,
        max(decision = 'purged') as is_purged,
        -- the last one in the order of their inputs, as below
        max_by(decision, {{ input_order() }})
            filter (where decision not in ('noted', 'purged')) = 'discarded' as is_discarded
    from {{ wheel() }} as deliveries
    where (decision in {{ decisions_where(succeeds='yes') }} or decision in {{ operator_decisions() }}) and {{ dues_in_bounds('prior_due') }}
    group by prior_delivery, prior_due

),

ordered as (

    select
        inputs.* except (is_purged),
        coalesce(answered_before.is_answered, false) or inputs.has_begun_anew as is_answered,
        coalesce(answered_before.is_purged, false) or inputs.is_purged as was_purged,
        coalesce(answered_before.is_discarded, false) as was_discarded,
        row_number() over (
            -- annotations (discard, restore, note, purge) are numbered by themselves, as they are no successors of a dead letter
            partition by
                inputs.standing, inputs.input_kind in {{ order_kinds('annotate') }},
                coalesce(inputs.answered.delivery_id, inputs.input_id), inputs.answered.due_at
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

annotated as (

    -- whether the dead letter is discarded when this input is decided: the last earlier input of this run says it, else the earlier runs
    select
        *,
        coalesce(
            last_value(
                case
                    when input_kind in ('discard', 'restore') then input_kind
                    when input_kind = 'redrive' and not is_answered and turn = 1 then input_kind
                end,
                true
            ) over ({{ before_this }}) = 'discard',
            was_discarded
        ) as is_discarded
    from ordered

),

purged as (

    select
        *,
        was_purged or coalesce(max(input_kind = 'purge' and is_discarded) over ({{ before_this }}), false) as is_purged
    from annotated

),

judged as (

    select
        coalesce(input_kind = 'failed_send' and answered.kind = 'publish', false) as is_failed_publication,
        * except (is_answered, has_begun_anew, was_purged, was_discarded, is_discarded, is_purged, turn, standing),
        case
            when standing = 'answer' and input_kind = 'purge' and (not is_discarded or has_begun_anew) then 'not_discarded'
            when standing = 'answer' and input_kind = 'redrive' and is_purged then 'payload_was_dropped'
            when standing = 'answer' and input_kind in {{ order_kinds('annotate') }} then standing
            when standing = 'answer' and is_answered then 'answered_already'
            else standing
        end as standing
    from purged

)

select
    *,
    case
        -- a redrive begins a life cycle, in which nothing has failed yet
        when standing = 'answer' and input_kind = 'redrive' then 0
        -- of a row of an outbox, the send is what is tried
        when standing = 'answer' and is_failed_publication then answered.attempt + case when error_kind = 'backpressure' then 0 else 1 end
        when standing = 'answer' and input_kind <> 'report' then answered.attempt
        when standing in ('answer', 'first', 'new_life_cycle', 'orphan', 'unreadable')
            -- a count that a trusted report states goes on from what was tried elsewhere, this failure included
            then coalesce(answered.attempt, stated_attempts - 1, 0) + case when error_kind in ('backpressure', 'follows') then 0 else 1 end
    end as attempt,
    case
        when standing = 'answer' and input_kind = 'failed_send' and not is_failed_publication
            then answered.publish_attempt + case when error_kind = 'backpressure' then 0 else 1 end
        when standing = 'answer' and input_kind not in ('report', 'redrive') then answered.publish_attempt
        else 0
    end as publish_attempt
from judged
