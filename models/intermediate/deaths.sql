-- deaths: the decisions by which messages die: to be written to a dead letter topic, adopted from one, or parked. Each with its payload,
-- wherever that lies.
with

deaths as (

    {{ decisions_shown(is_dead_letter('deliveries')) }}

),

written_again as (

    -- few: what could not be written at once
    select
        again.delivery_id,
        again.due_at,
        firsts.error_stack,
        firsts.key,
        firsts.value,
        firsts.headers
    from (
        {{ decisions_once("deliveries.payload_due is not null") }}
    ) as again
    inner join deaths as firsts
        on
            again.payload_delivery = firsts.delivery_id
            and again.payload_due = firsts.due_at

),

complete as (

    select
        deaths.* except (error_stack, matched, key, value, headers),
        coalesce(deaths.error_stack, written_again.error_stack) as error_stack,
        deaths.matched,
        coalesce(deaths.key, written_again.key) as key,
        coalesce(deaths.value, written_again.value) as value,
        coalesce(deaths.headers, written_again.headers) as headers
    from deaths
    left join written_again
        on
            deaths.delivery_id = written_again.delivery_id
            and deaths.due_at = written_again.due_at

)

select * from complete
