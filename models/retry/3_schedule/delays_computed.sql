-- delays_computed: how long the message of each input waits, if a retry is decided later.
with

failures as (

    select * from {{ ref('policies_chosen') }}

),

counted as (

    select
        *,
        case when input_kind = 'failed_send' and not is_failed_publication then publish_attempt else attempt end as failures_so_far
    from failures

),

delayed as (

    select
        * except (failures_so_far, failed_at),
        -- a failure can't have happened before its delivery was due: without this, a slow clock makes retries due at once and uses up the attempts
        case when input_kind in {{ order_kinds() }} then failed_at else greatest(failed_at, answered.due_at) end as failed_at,
        case
            -- what an order asks for is due at once
            when input_kind in {{ order_kinds() }} then 0
            -- the report of a message that waits elsewhere already, from a trusted source
            when answered is null and stated_due is not null then greatest(unix_millis(stated_due) - unix_millis(failed_at), 0)
            -- it waits for a message, not for a time
            when error_kind = 'follows' then 0
            -- a short pause, the same each time
            when error_kind = 'backpressure' then policy.backpressure_ms
            -- no route, so no policy: `least` would ignore the null, and a dead letter that was refused would wait for a year
            when policy is null then null
            else cast(round(least(
                {{ backoff_delay_ms('failures_so_far', 'policy') }}
                -- retries at the normal pace would keep a quota used up
                * case when error_kind = 'quota' then policy.quota_multiplier else 1 end
                * {{ jitter('message_id', 'failures_so_far', 'policy.jitter') }},
                -- 365 days, the longest duration that a policy can name: a quota_multiplier of 1000 would make centuries of it
                {{ limits('delay_ms') }}d
            )) as bigint)
        end as delay_ms
    from counted

)

select * from delayed
