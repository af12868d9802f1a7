-- decisions_gathered: the decisions about failures and orders, and those about rows of outboxes, each with its payload.
with

failures_decided as (

    select * from {{ ref('payloads_kept') }}

),

rows_decided as (

    select * from {{ ref('rows_decided') }}

),

gathered as (

    select {{ decided_columns() }} from failures_decided
    union all
    select {{ decided_columns() }} from rows_decided

)

select * from gathered
