-- assert_every_event_has_one_decision: fails if the decide step dropped or doubled an event. The decide step checks its own inputs; this checks all
-- that were ever decided. Events after the last decided batch are left out.
with

events as (

    select
        {{ event_input_id('events') }} as input_id
    from {{ ref('events') }} as events
    where batch <= (select max(batch) from {{ ref('decisions') }})

),

decisions as (

    select
        input_id,
        count(*) as decisions
    from {{ ref('decisions') }}
    group by input_id

),

validation_errors as (

    select
        events.input_id,
        coalesce(decisions.decisions, 0) as decisions
    from events
    left join decisions on events.input_id = decisions.input_id
    where coalesce(decisions.decisions, 0) <> 1

)

select * from validation_errors
