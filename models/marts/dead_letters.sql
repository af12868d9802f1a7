-- dead_letters: what died, why, where its dead letter lies, and what has been done about it. Never here before the copy is acknowledged.
with

stranded_messages as (

    select * from {{ ref('stranded_messages') }}

),

dead_letters as (

    -- what was refused lies nowhere
    select * from stranded_messages
    where topic is not null

)

select * from dead_letters
