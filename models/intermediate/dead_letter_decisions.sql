-- dead_letter_decisions: the decisions by which messages die: a dead letter is to be written, is adopted, or the message is parked. Each has its
-- payload, even if that is in the row of an earlier dead letter.
with

dead_letter_decisions as (

    {{ decisions_shown(is_dead_letter('deliveries')) }}

),

written_again as (

    -- dead letters that are written again, as Kafka refused them: their payload is in the row of the first dead letter. There are few
    select
        again.delivery_id,
        again.due_at,
        firsts.error_stack,
        firsts.key,
        firsts.value,
        firsts.headers,
        firsts.by_reference
    from (
        {{ decisions_once("deliveries.payload_due is not null") }}
    ) as again
    inner join dead_letter_decisions as firsts
        on
            again.payload_delivery = firsts.delivery_id
            and again.payload_due = firsts.due_at

),

complete as (

    select
        dead_letter_decisions.* except (error_stack, matched, key, value, headers, by_reference),
        coalesce(dead_letter_decisions.error_stack, written_again.error_stack) as error_stack,
        dead_letter_decisions.matched,
        coalesce(dead_letter_decisions.key, written_again.key) as key,
        coalesce(dead_letter_decisions.value, written_again.value) as value,
        coalesce(dead_letter_decisions.headers, written_again.headers) as headers,
        coalesce(written_again.by_reference, dead_letter_decisions.by_reference, false) as by_reference
    from dead_letter_decisions
    left join written_again
        on
            dead_letter_decisions.delivery_id = written_again.delivery_id
            and dead_letter_decisions.due_at = written_again.due_at

)

select * from complete
