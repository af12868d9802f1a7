-- assert_no_attempt_is_skipped_or_counted_twice: fails if a forged or replayed report reset or raised a count: the attempts of a life cycle must be
-- 1, 2, 3, ... Failures of kind backpressure are left out, as they are not counted.
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
