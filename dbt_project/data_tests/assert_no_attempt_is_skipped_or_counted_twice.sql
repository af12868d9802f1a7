-- Guards against forged or replayed reports that reset or inflate a count: the attempts of a life cycle are 1, 2, 3, ... without a gap.
-- What was turned away for want of room is charged nothing.
with

attempts as (

    select * from {{ ref('attempts') }}
    where decision <> 'orphan' and error_kind <> 'backpressure'

),

validation_errors as (

    select
        message_id,
        life_cycle,
        count(*) as counted,
        max(attempt) as highest
    from attempts
    group by message_id, life_cycle
    having count(*) <> max(attempt) or count(distinct attempt) <> count(*)

)

select * from validation_errors
