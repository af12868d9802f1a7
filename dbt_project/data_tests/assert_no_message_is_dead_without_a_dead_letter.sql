-- assert_no_message_is_dead_without_a_dead_letter: fails if a dead message has no acknowledged dead letter. Parked messages have none.
-- Whether the dead letter is still in its topic is not tested.
with

messages as (

    select * from {{ ref('messages') }}
    where state = 'dead'

),

dead_letters as (

    select * from {{ ref('dead_letters') }}

),

validation_errors as (

    select messages.message_id
    from messages
    left join dead_letters on messages.message_id = dead_letters.message_id
    where
        dead_letters.message_id is null
        or (dead_letters.offset is null and dead_letters.decision <> 'parked')

)

select * from validation_errors
