-- Is anything undecided, was anything sent early, does a delivery have two `delivered` results? These must be 0. A record that was sent again after a
-- crash, because its first result was never appended, is not seen here. While the loop runs, the other two count
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
    where sent_at < due_at and found_by is null

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
        'dead letters not acknowledged yet',
        count(*)
    from {{ ref('messages') }}
    where state = 'dead_letter_pending'

)

select * from counted
