-- held_deliveries: the retries that circuit breakers hold back: due, not sent, and not released yet.
with

decisions as (

    select * from {{ ref('decisions') }}

),

held as (

    select
        delivery_id,
        due_at,
        recorded_at
    from {{ ref('publish_results') }}
    where outcome = 'held'

),

answered as (

    {{ deliveries_answered(ref('deliveries')) }}

),

refused as (

    -- deliveries whose release was refused under the present rules, which would refuse it again
    select
        prior_delivery as delivery_id,
        prior_due as due_at,
        true as is_refused
    from {{ ref('deliveries') }}
    where
        -- the orders of circuit breakers; what else names the delivery may be refused for reasons of its own
        prior_delivery is not null and decision = 'refused' and input_id like 'loop/1/%'
        and rules_hash in (select rules.rules_hash from {{ ref('rules') }} as rules)
    group by prior_delivery, prior_due

),

held_deliveries as (

    select
        decisions.breaker_key,
        decisions.delivery_id,
        decisions.due_at,
        decisions.due_hour,
        decisions.message_id,
        held.recorded_at as held_at,
        decisions.first_failed_at,
        decisions.consumer_group,
        decisions.original_topic,
        decisions.original_partition,
        decisions.original_offset,
        coalesce(refused.is_refused, false) as is_refused
    from held
    inner join decisions
        on
            held.delivery_id = decisions.delivery_id
            and held.due_at = decisions.due_at
    left anti join answered
        on
            held.delivery_id = answered.delivery_id
            and held.due_at = answered.due_at
    left join refused
        on
            held.delivery_id = refused.delivery_id
            and held.due_at = refused.due_at

)

select * from held_deliveries
