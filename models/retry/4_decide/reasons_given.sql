-- reasons_given: why something is decided about each input, in one word. All of them: macros/decisions/decision_reasons.sql.
with

failures as (

    select
        *,
        input_kind = 'failed_send' as is_failed_send,
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
        greatest(failed_at + make_dt_interval(0, 0, 0, delay_ms / 1000.0), recorded_at) as retry_at,
        case
            when input_kind = 'report' then coalesce(answered.first_failed_at, failed_at)
            -- nothing has failed yet in this life cycle
            when input_kind <> 'redrive' then answered.first_failed_at
        end as first_failed_at
    from failures

),

reasoned as (

    select
        *,
        case
            when standing = 'noted' then input_kind
            -- it is dead already, and lies where it was read: wherever it came from
            when adopts and standing in ('first', 'new_life_cycle', 'answer', 'orphan', 'unreadable') then 'adopted'
            -- it begins no message and answers nothing that is open: the standing says why
            when standing not in ('first', 'new_life_cycle', 'answer') then standing
            when is_failed_send and answered.kind = 'dead_letter' then 'dead_letter_failed'
            when is_order then input_kind
            when is_failed_send and error_kind in ('fatal', 'poison') then 'send_failed'
            -- there was no room for it, and it charged nothing: a bound that was lowered meanwhile is for the next send that fails
            when is_failed_send and error_kind = 'backpressure' then error_kind
            when is_failed_send and publish_attempt >= policy.max_attempts then 'send_failed'
            when is_failed_send then coalesce(error_kind, 'retriable')
            when policy.policy is null then 'no_route'
            when error_kind in ('fatal', 'poison') then error_kind
            -- there was no room for it: that is no reason to die
            when error_kind = 'backpressure' then error_kind
            when attempt >= max_attempts then 'exhausted'
            when retry_at > first_failed_at + make_dt_interval(0, 0, 0, policy.max_elapsed_ms / 1000.0) then 'out_of_time'
            else error_kind
        end as reason
    from timed

)

select * from reasoned
