-- Guards against counting a message as dead before its copy is acknowledged, but for one that was parked, which has none and lies in the
-- tables. Does not test that the copy is still in its topic.
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
