-- reasons_given: the reason of each decision, one word. macros/decisions/decision_reasons.sql lists them, with the decision that each leads to.
with

failures as (

    select
        *,
        input_kind = 'failed_send' as is_failed_send,
        input_kind = 'failed_send' and not is_failed_publication as is_failed_repetition,
        input_kind in {{ order_kinds() }} as is_order
    from {{ ref('delays_computed') }}

),

timed as (

    select
        * except (delay_ms),
        case
            when is_failed_send and answered.kind = 'dead_letter' then {{ dead_letter_pause_ms('delay_ms', 'publish_attempt') }}
            else delay_ms
        end as delay_ms,
        greatest(
            failed_at + make_dt_interval(0, 0, 0, delay_ms / 1000.0),
            recorded_at,
            -- the due time that a command's rate gives to the message
            case when is_order then happened_at end
        ) as retry_at,
        case
            when input_kind = 'report' and error_kind = 'follows' then answered.first_failed_at
            when input_kind = 'report' or is_failed_publication then coalesce(answered.first_failed_at, failed_at)
            -- null after a redrive: nothing has failed yet in the new life cycle
            when input_kind <> 'redrive' then answered.first_failed_at
        end as first_failed_at
    from failures

),

reasoned as (

    select
        *,
        case
            when standing = 'fact' then input_kind
            -- what is adopted is dead already and stays where it was read: neither its error nor its attempts matter
            when adopts and standing in ('first', 'new_life_cycle', 'answer', 'orphan', 'unreadable') then 'adopted'
            -- an input that neither begins a message or a life cycle nor answers a delivery: its standing is the reason
            when standing not in ('first', 'new_life_cycle', 'answer') then standing
            when is_failed_send and answered.kind = 'dead_letter' then 'dead_letter_failed'
            when is_order then input_kind
            when is_failed_repetition and error_kind in ('fatal', 'poison') then 'send_failed'
            -- a failed send of kind backpressure was not counted: it can't exhaust the policy, even if the policy's bound was lowered meanwhile
            when is_failed_repetition and error_kind = 'backpressure' then error_kind
            when is_failed_repetition and publish_attempt >= policy.max_attempts then 'send_failed'
            when is_failed_repetition then coalesce(error_kind, 'retriable')
            when policy.policy is null then 'no_route'
            when error_kind in ('fatal', 'poison', 'follows') then error_kind
            -- backpressure is retried whatever the attempts and the time since the first failure
            when error_kind = 'backpressure' then error_kind
            when attempt >= max_attempts then 'exhausted'
            when retry_at > first_failed_at + make_dt_interval(0, 0, 0, policy.max_elapsed_ms / 1000.0) then 'out_of_time'
            else error_kind
        end as reason
    from timed

)

select * from reasoned
