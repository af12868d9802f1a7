-- message_history: a message's history, step by step: each failure with what was decided about it and why, each send with its outcome.
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
