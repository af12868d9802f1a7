-- gates: circuit_breakers in the words of table version 1, where `closed` meant that retries are held back. The next version removes this view.
with

circuit_breakers as (

    select * from {{ ref('circuit_breakers') }}

),

gates as (

    select
        breaker_key as scope,
        case state when 'closed' then 'open' when 'closing' then 'opening' else 'closed' end as state,
        opened_at as since,
        closed_at as opened_at,
        reason,
        probes,
        probe_under_way,
        next_probe_at,
        held,
        oldest_failed_at
    from circuit_breakers

)

select * from gates
