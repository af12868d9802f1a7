-- dead_letters_by_hour: how many messages died in each hour, by when that was decided, not by when the dead letter was acknowledged.
with

died as (

    -- a dead letter that is written again, as Kafka refused it, is not counted again
    {{ decisions_once("((deliveries.kind = 'dead_letter' and deliveries.reason <> 'dead_letter_failed') or deliveries.decision = 'parked')") }}

),

adopted as (

    {{ decisions_once("deliveries.decision = 'adopted'") }}

),

died_or_adopted as (

    select
        -- due_hour has file statistics, so that a condition on hour skips the files of other hours
        due_hour as hour,
        original_topic,
        error_class,
        error_kind
    from died

    union all

    -- adopted dead letters count in the hour of their failure: old ones must not look like a burst of today
    select
        date_trunc('hour', failed_at) as hour,
        original_topic,
        error_class,
        error_kind
    from adopted

),

dead_letters_by_hour as (

    select
        hour,
        original_topic,
        error_class,
        error_kind,
        count(*) as died
    from died_or_adopted
    group by hour, original_topic, error_class, error_kind

)

select * from dead_letters_by_hour
