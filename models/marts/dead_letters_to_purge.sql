-- dead_letters_to_purge: dead letters whose payload has been kept for as long as their route says. A purge needs a discarded one: an open one is
-- discarded first. Nothing is purged before somebody runs the triage.
with

dead_letters as (

    select * from {{ ref('dead_letters') }}
    where state in ('open', 'discarded') and purged_at is null and purge_due <= current_timestamp()

),

commanded as (

    -- not listed again: dead letters that a command lists and whose order isn't decided
    select distinct delivery_id from {{ ref('commanded_messages') }}
    where state in ('listed', 'issued')

),

dead_letters_to_purge as (

    select
        ---------- which
        dead_letters.message_id,
        dead_letters.delivery_id,
        dead_letters.due_at,

        ---------- what is to be done about it
        case when dead_letters.state = 'open' then 'discard' else 'purge' end as what,
        dead_letters.purge_due,

        ---------- what it died of
        dead_letters.dead_at,
        dead_letters.error_class,
        dead_letters.error_kind,
        dead_letters.original_topic,
        dead_letters.consumer_group
    from dead_letters
    left anti join commanded on dead_letters.delivery_id = commanded.delivery_id

)

select * from dead_letters_to_purge
