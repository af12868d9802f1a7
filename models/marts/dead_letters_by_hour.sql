-- dead_letters_by_hour: how many messages died in each hour: decided in it, whenever their dead letter was acknowledged.
with

died as (

    -- a dead letter that is written again is no new death
    {{ decisions_once("((deliveries.kind = 'dead_letter' and deliveries.reason <> 'dead_letter_failed') or deliveries.decision = 'parked')") }}

),

adopted as (

    {{ decisions_once("deliveries.decision = 'adopted'") }}

),

deaths as (

    select
        -- a column of the file statistics: hours that aren't asked for aren't read
        due_hour as hour,
        original_topic,
        error_class,
        error_kind
    from died

    union all

    -- old ones that are adopted today are no news of today
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
    from deaths
    group by hour, original_topic, error_class, error_kind

)

select * from dead_letters_by_hour
