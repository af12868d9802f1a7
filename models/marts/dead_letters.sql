-- dead_letters: what died, why, and where its dead letter lies. Never here before the copy is acknowledged.
with

last_decisions as (

    select * from {{ ref('last_decisions') }}
    where kind = 'dead_letter'

),

results as (

    select * from {{ ref('last_results') }}
    where outcome = 'delivered'

),

dead_letters as (

    select
        ---------- which
        last_decisions.message_id,

        ---------- where it lies
        results.topic,
        results.partition,
        results.offset,
        results.sent_at as dead_at,

        ---------- why
        last_decisions.reason,
        last_decisions.error_class,
        last_decisions.error_kind,
        last_decisions.error_message,
        last_decisions.error_stack,
        last_decisions.rule,
        last_decisions.matched,
        last_decisions.attempt as attempts,
        last_decisions.life,
        last_decisions.first_failed_at,
        last_decisions.failed_at,

        ---------- where it came from
        last_decisions.consumer_group,
        last_decisions.original_topic,
        last_decisions.original_partition,
        last_decisions.original_offset,
        last_decisions.source,
        last_decisions.delivery_id,

        ---------- what it is
        last_decisions.key,
        last_decisions.value,
        last_decisions.headers
    from last_decisions
    inner join results
        on
            last_decisions.delivery_id = results.delivery_id
            and last_decisions.due_at = results.due_at

)

select * from dead_letters
