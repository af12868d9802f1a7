-- turns_taken: of the inputs of this run that answer the same delivery, or begin the same message, the first one whose decision can be a successor
-- counts. Those after it become duplicates.
with

decided as (

    select * from {{ ref('destinations_chosen') }}

),

claimed as (

    select
        *,
        case
            -- a redrive begins the message again, and so may a report in this run
            when standing in ('first', 'new_life_cycle') or (standing = 'answer' and input_kind = 'redrive')
                then struct(message_id as name, cast(null as timestamp) as due_at)
            -- annotations are no successors of a dead letter: there may be any number of them
            when standing = 'answer' and input_kind not in {{ order_kinds('annotate') }} then struct(answered.delivery_id as name, answered.due_at as due_at)
        end as claim,
        objection is null and decision in {{ decisions_where(succeeds='yes') }} as succeeds
    from decided

),

ordered as (

    select
        * except (claim, succeeds),
        claim is not null and coalesce(
            max(succeeds) over (
                partition by coalesce(claim.name, input_id), claim.due_at
                order by
                    batch,
                    case when input_kind = 'report' then 0 else 1 end,
                    report_topic, report_partition, report_offset, report_index
                rows between unbounded preceding and 1 preceding
            ),
            false
        ) as is_too_late
    from claimed

),

settled as (

    -- an input that comes too late sends nothing, and no failure is charged
    select
        * except (
            is_too_late, standing, attempt, publish_attempt, decision, reason, objection, destination, is_sent_anew, keeps_its_error, is_tried_again
        ),
        case when is_too_late then null else standing end as standing,
        case when is_too_late then null else attempt end as attempt,
        case when is_too_late then 0 else publish_attempt end as publish_attempt,
        case when is_too_late then 'duplicate' else decision end as decision,
        case
            when is_too_late and standing = 'answer' then 'answered_already'
            when is_too_late then 'known_already'
            else reason
        end as reason,
        case when is_too_late then null else objection end as objection,
        case when is_too_late then null else destination end as destination,
        is_sent_anew and not is_too_late as is_sent_anew,
        keeps_its_error and not is_too_late as keeps_its_error,
        is_tried_again and not is_too_late as is_tried_again
    from ordered

)

select * from settled
