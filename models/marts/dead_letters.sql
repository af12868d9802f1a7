-- dead_letters: messages that died, why, where the dead letter lies, and what has been done about it. A message is here once Kafka has acknowledged
-- its dead letter; at once, if it was adopted or parked.
-- stranded_messages.yml describes it and its columns.
with

stranded_messages as (

    select * from {{ ref('stranded_messages') }}

),

dead_letters as (

    select * from stranded_messages
    where decision <> 'refused'

)

select * from dead_letters
