-- message_history: each message's history, step by step: every decision with its reason, every send with its outcome.
with

decisions as (

    select * from {{ ref('history_of_decisions') }}

),

sends as (

    select * from {{ ref('history_of_sends') }}

),

history as (

    select * from decisions
    union all
    select * from sends

)

select * from history
