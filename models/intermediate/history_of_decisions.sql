-- history_of_decisions: the decisions as steps of `message_history`, each with the operator's command that asked for it, if one did.
with

decisions as (

    select * from {{ ref('decisions') }}
    where decision <> 'note'

),

orders as (

    select
        {{ event_input_id('events') }} as input_id,
        command
    from {{ ref('events') }} as events
    where command is not null and delivery_id is not null

),

commands as (

    select * from {{ ref('operator_commands') }}

),

rules as (

    select rules_hash from {{ ref('rules') }}

)

select
    ---------- which
    decisions.message_id,
    decisions.life_cycle,
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

    ---------- which command asked for it, if one did
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
left join orders on decisions.input_id = orders.input_id
left join commands on orders.command = commands.command
