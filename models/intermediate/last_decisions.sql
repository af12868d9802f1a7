-- last_decisions: the decision that each message's state follows from: the last one that changed it.
with

decisions as (

    select * from {{ ref('decisions') }}
    where
        decision not in ('duplicate', 'note') and decision not in {{ operator_decisions() }}
        -- an operator's order that was refused changes nothing
        and not (decision = 'refused' and input_id like 'loop/%')

),

numbered as (

    select
        *,
        row_number() over (partition by message_id order by batch desc, due_at desc, {{ input_order() }} desc) as from_last
    from decisions

),

last_decisions as (

    select * except (from_last) from numbered
    where from_last = 1

)

select * from last_decisions
