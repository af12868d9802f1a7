-- attempts: every failed attempt at processing, what was decided about it, and what became of the delivery that followed.
with

failures as (

    -- only reports are failed attempts: a decision that follows a failed send, a circuit breaker or an operator's order has no report_topic
    select * from {{ ref('decisions') }}
    where (kind is not null or decision in ('adopted', 'parked', 'dropped')) and report_topic is not null

),

results as (

    select * from {{ ref('last_results') }}

),

attempts as (

    select
        ---------- which
        failures.message_id,
        failures.life_cycle,
        failures.attempt,
        failures.max_attempts,

        ---------- why it failed
        failures.failed_at,
        failures.error_class,
        failures.error_message,
        failures.error_kind,
        failures.rule,
        failures.matched,

        ---------- what was decided
        failures.decision,
        failures.reason,
        failures.policy,
        failures.policy_text,
        failures.delay_ms,
        failures.due_at,

        ---------- what became of it
        results.sent_at,
        unix_millis(results.sent_at) - unix_millis(failures.due_at) as lateness_ms,
        results.outcome,
        failures.topic,
        failures.delivery_id,

        ---------- where it came from
        failures.consumer_group,
        failures.original_topic,
        failures.original_partition,
        failures.original_offset,
        failures.source,
        failures.problems
    from failures
    left join results
        on
            failures.delivery_id = results.delivery_id
            and failures.due_at = results.due_at

)

select * from attempts
