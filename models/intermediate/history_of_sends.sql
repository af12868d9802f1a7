-- history_of_sends: the sends as steps of `message_history`. The columns must be those of history_of_decisions, in the same order.
with

decisions as (

    select * from {{ ref('decisions') }}
    where decision <> 'note'

),

results as (

    select * from {{ ref('publish_results') }}
    where delivery_id is not null

)

select
    ---------- which
    results.message_id,
    decisions.life_cycle,
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

    ---------- which command asked for it, if one did
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
left join decisions
    on
        results.delivery_id = decisions.delivery_id
        and results.due_at = decisions.due_at
-- a row of an outbox may have been sent without a decision
where decisions.delivery_id is not null or results.kind = 'publish'
