-- assert_no_attempt_is_skipped_or_counted_twice: fails if a forged or replayed report reset or raised a count: the attempts of a life cycle must be
-- 1, 2, 3, ...; a source whose counts are trusted may begin with a later one. Failures of kinds that are not counted are left out.
with

attempts as (

    select * from {{ ref('attempts') }}
    where decision <> 'orphan' and error_kind not in ('backpressure', 'follows')

),

trusted as (

    select source from {{ ref('sources') }}
    where lower(cast(trusts_counts as string)) = 'true'

),

validation_errors as (

    select
        attempts.message_id,
        attempts.life_cycle,
        count(*) as counted,
        max(attempts.attempt) as highest
    from attempts
    left join trusted on attempts.source = trusted.source
    group by attempts.message_id, attempts.life_cycle
    having
        count(*) <> max(attempts.attempt) - min(attempts.attempt) + 1
        or count(distinct attempts.attempt) <> count(*)
        or (min(attempts.attempt) > 1 and count(trusted.source) = 0)

)

select * from validation_errors
