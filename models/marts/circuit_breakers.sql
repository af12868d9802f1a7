-- circuit_breakers: every opening of a circuit breaker: its state, its probes, and what it holds back.
with

ticks as (

    select * from {{ ref('ticks') }}
    where circuit_breakers is not null

),

last_tick as (

    select max_by(coalesce(circuit_breakers, map()), batch) as breakers
    from {{ ref('ticks') }}

),

seen as (

    select
        batch,
        explode(circuit_breakers) as (breaker_key, breaker)
    from ticks

),

last_seen as (

    select
        breaker_key,
        breaker.opened_at as opened_at,
        max_by(breaker, batch) as breaker
    from seen
    group by breaker_key, breaker.opened_at

),

openings as (

    -- the loop keeps a closed circuit breaker in `ticks` until everything that it held is released
    select
        last_seen.*,
        try_element_at(last_tick.breakers, last_seen.breaker_key).opened_at <=> last_seen.opened_at as is_kept
    from last_seen
    cross join last_tick

),

held as (

    select
        breaker_key,
        count(*) as held,
        min(first_failed_at) as oldest_failed_at
    from {{ ref('held_deliveries') }}
    group by breaker_key

),

circuit_breakers as (

    select
        openings.breaker_key,
        case
            when openings.breaker.closed_at is null and openings.breaker.probe is not null then 'half_open'
            when openings.breaker.closed_at is null then 'open'
            when openings.is_kept then 'closing'
            else 'closed'
        end as state,
        openings.opened_at,
        openings.breaker.closed_at,
        openings.breaker.error_class as reason,
        openings.breaker.probes,
        openings.breaker.probe.delivery_id as probe_under_way,
        case when openings.breaker.closed_at is null and openings.breaker.probe is null then openings.breaker.next_probe end as next_probe_at,
        case when openings.is_kept then coalesce(held.held, 0) else 0 end as held,
        case when openings.is_kept then held.oldest_failed_at end as oldest_failed_at
    from openings
    left join held on openings.breaker_key = held.breaker_key

)

select * from circuit_breakers
