-- Guards against a rule that drops or doubles an input. The decide step checks it for what it decides; this looks at all that was ever decided.
-- Does not test events that no decide run has seen yet: those above the watermark.
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
