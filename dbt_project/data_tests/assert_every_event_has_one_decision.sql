-- Guards against a rule that drops or doubles an input. The fold checks it for what it decides; this looks at all that was ever decided.
-- Does not test events that no fold has seen yet: those above the watermark.
with

events as (

    select
        {{ event_cause('events') }} as cause
    from {{ ref('events') }} as events
    where batch <= (select max(batch) from {{ ref('decisions') }})

),

decisions as (

    select
        cause,
        count(*) as decisions
    from {{ ref('decisions') }}
    group by cause

),

validation_errors as (

    select
        events.cause,
        coalesce(decisions.decisions, 0) as decisions
    from events
    left join decisions on events.cause = decisions.cause
    where coalesce(decisions.decisions, 0) <> 1

)

select * from validation_errors
