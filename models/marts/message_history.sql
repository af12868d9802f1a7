-- message_history: a message's life, step by step: each failure with what was decided about it and why, each send with its outcome.
with

decisions as (

    select * from {{ ref('decisions') }}
    where decision <> 'note'

),

results as (

    select * from {{ ref('publish_results') }}
    where delivery_id is not null

),

orders as (

    select
        {{ event_cause('events') }} as cause,
        command
    from {{ ref('events') }} as events
    where command is not null and delivery_id is not null

),

commands as (

    select * from {{ ref('operator_commands') }}

),

rules as (

    select rules_hash from {{ ref('rules') }}

),

decided as (

    select
        ---------- which
        decisions.message_id,
        decisions.life,
        decisions.batch,
        decisions.recorded_at as at,
        'decided' as what,
        decisions.attempt,
        decisions.max_attempts,
        decisions.publish_attempt,
        decisions.delivery_id,

        ---------- why it failed, and when
        decisions.failed_at,
        decisions.error_class,
        decisions.error_message,
        decisions.error_kind,
        decisions.rule,
        decisions.matched,
        decisions.passed_over,

        ---------- what was decided
        decisions.decision,
        decisions.reason,
        decisions.policy,
        decisions.policy_text,
        decisions.delay_ms,
        decisions.due_at,
        decisions.rules_hash <> rules.rules_hash as rules_have_changed,

        ---------- who wanted it, where somebody did
        commands.command,
        commands.who,
        commands.reason as why,
        commands.ticket,

        ---------- where it goes, or lies
        decisions.topic,
        decisions.partition,
        cast(null as bigint) as offset,

        ---------- what became of a send
        cast(null as string) as outcome,
        cast(null as bigint) as lateness_ms,
        cast(null as timestamp) as not_before
    from decisions
    cross join rules
    left join orders on decisions.cause = orders.cause
    left join commands on orders.command = commands.command

),

sent as (

    select
        ---------- which
        results.message_id,
        decisions.life,
        results.batch,
        coalesce(results.sent_at, results.recorded_at) as at,
        'sent' as what,
        decisions.attempt,
        decisions.max_attempts,
        decisions.publish_attempt,
        results.delivery_id,

        ---------- why it failed, and when
        case when results.outcome = 'failed' then results.recorded_at end as failed_at,
        results.error_name as error_class,
        results.error_message,
        results.error_kind,
        cast(null as string) as rule,
        cast(null as string) as matched,
        cast(null as array<string>) as passed_over,

        ---------- what was decided
        decisions.decision,
        decisions.reason,
        cast(null as string) as policy,
        cast(null as string) as policy_text,
        cast(null as bigint) as delay_ms,
        results.due_at,
        cast(null as boolean) as rules_have_changed,

        ---------- who wanted it, where somebody did
        cast(null as string) as command,
        cast(null as string) as who,
        cast(null as string) as why,
        cast(null as string) as ticket,

        ---------- where it goes, or lies
        results.topic,
        results.partition,
        results.offset,

        ---------- what became of a send
        results.outcome,
        unix_millis(results.sent_at) - unix_millis(results.due_at) as lateness_ms,
        results.not_before
    from results
    inner join decisions
        on
            results.delivery_id = decisions.delivery_id
            and results.due_at = decisions.due_at

),

history as (

    select * from decided
    union all
    select * from sent

)

select * from history
