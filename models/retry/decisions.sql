-- decisions: each row of `deliveries` once. A fold that is repeated after a crash, or runs beside another, adds copies that are identical.
{{ config(materialized='view') }}

with

deliveries as (

    select * from {{ ref('deliveries') }}

),

numbered as (

    -- batch and due_at are the same in all copies; named here, they let a reader's bounds prune files
    select
        *,
        row_number() over (partition by cause, batch, due_at order by cause) as copy
    from deliveries

),

decisions as (

    select * except (copy) from numbered
    where copy = 1

)

select * from decisions
