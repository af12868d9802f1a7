-- circuit_breakers: every opening of a circuit breaker: its state, its probes, and what it holds back.
with

ticks as (

    select * from {{ ref('ticks') }}
    where circuit_breakers is not null

),

last_tick as (

    select map_keys(max_by(coalesce(circuit_breakers, map()), batch)) as breaker_keys
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
        last_seen.breaker_key,
        case
            when last_seen.breaker.closed_at is null and last_seen.breaker.probe is not null then 'half_open'
            when last_seen.breaker.closed_at is null then 'open'
            -- the loop keeps a closed circuit breaker in `ticks` until everything that it held is released
            when array_contains(last_tick.breaker_keys, last_seen.breaker_key) then 'closing'
            else 'closed'
        end as state,
        last_seen.opened_at,
        last_seen.breaker.closed_at,
        last_seen.breaker.error_class as reason,
        last_seen.breaker.probes,
        last_seen.breaker.probe.delivery_id as probe_under_way,
        last_seen.breaker.next_probe as next_probe_at,
        case when array_contains(last_tick.breaker_keys, last_seen.breaker_key) then coalesce(held.held, 0) else 0 end as held,
        case when array_contains(last_tick.breaker_keys, last_seen.breaker_key) then held.oldest_failed_at end as oldest_failed_at
    from last_seen
    cross join last_tick
    left join held on last_seen.breaker_key = held.breaker_key

)

select * from circuit_breakers
