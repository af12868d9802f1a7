-- Was anything lost, sent early, or sent twice? `sent before they were due` and `sent twice` must be 0. While the loop runs, the other two count
-- what is still to be decided or acknowledged: they must fall to 0.
with

events as (

    select
        {{ event_input_id('events') }} as input_id
    from {{ ref('events') }} as events

),

decisions as (

    select * from {{ ref('decisions') }}

),

results as (

    select * from {{ ref('publish_results') }}
    where outcome = 'delivered'

),

counted as (

    select
        'events without a decision' as what,
        count(*) as rows
    from events
    left anti join decisions on events.input_id = decisions.input_id

    union all

    select
        'sent before they were due',
        count(*)
    from results
    where sent_at < due_at

    union all

    select
        'sent twice',
        count(*)
    from (
        select delivery_id from results
        group by delivery_id
        having count(*) > 1
    ) as sent_twice

    union all

    select
        'dead without a dead letter',
        count(*)
    from {{ ref('messages') }}
    where state = 'dead_letter_pending'

)

select * from counted
