-- Guards against counting a message as dead before its copy is acknowledged. Does not test that the copy is still in its topic.
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
    where dead_letters.offset is null

)

select * from validation_errors
