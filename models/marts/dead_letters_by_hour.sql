-- dead_letters_by_hour: how many messages died in each hour: decided in it, whenever their dead letter was acknowledged.
with

deaths as (

    -- a dead letter that is written again is no new death
    select * from {{ ref('decisions') }}
    where kind = 'dead_letter' and reason <> 'dead_letter_failed'

),

dead_letters_by_hour as (

    select
        -- a column of the file statistics: hours that aren't asked for aren't read
        due_hour as hour,
        original_topic,
        error_class,
        error_kind,
        count(*) as dead
    from deaths
    group by due_hour, original_topic, error_class, error_kind

)

select * from dead_letters_by_hour
