-- gates: what blocking errors hold up, since when, and how the probes go.
with

ticks as (

    select * from {{ ref('ticks') }}
    where gates is not null

),

last_tick as (

    select map_keys(max_by(coalesce(gates, map()), batch)) as scopes
    from {{ ref('ticks') }}

),

seen as (

    select
        batch,
        explode(gates) as (scope, gate)
    from ticks

),

last_seen as (

    select
        scope,
        gate.closed_at as closed_at,
        max_by(gate, batch) as gate
    from seen
    group by scope, gate.closed_at

),

held as (

    select
        gate as scope,
        count(*) as held,
        min(first_failed_at) as oldest_failed_at
    from {{ ref('held_deliveries') }}
    group by gate

),

gates as (

    select
        last_seen.scope,
        case
            when last_seen.gate.opened_at is null then 'closed'
            -- what it held is released little by little
            when array_contains(last_tick.scopes, last_seen.scope) then 'opening'
            else 'open'
        end as state,
        last_seen.closed_at as since,
        last_seen.gate.opened_at,
        last_seen.gate.error_class as reason,
        last_seen.gate.probes,
        last_seen.gate.probe.delivery_id as probe_under_way,
        last_seen.gate.next_probe as next_probe_at,
        case when array_contains(last_tick.scopes, last_seen.scope) then coalesce(held.held, 0) else 0 end as held,
        case when array_contains(last_tick.scopes, last_seen.scope) then held.oldest_failed_at end as oldest_failed_at
    from last_seen
    cross join last_tick
    left join held on last_seen.scope = held.scope

)

select * from gates
