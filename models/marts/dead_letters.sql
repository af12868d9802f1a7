-- dead_letters: what died, why, where its dead letter lies, and what has been done about it. Never here before the copy is acknowledged, where
-- there is to be one.
-- Its description and columns: stranded_messages.yml.
with

stranded_messages as (

    select * from {{ ref('stranded_messages') }}

),

dead_letters as (

    select * from stranded_messages
    where decision <> 'refused'

)

select * from dead_letters
