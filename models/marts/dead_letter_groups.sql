-- dead_letter_groups: dead letters, grouped by their cause and counted.
with

dead_letters as (

    select * from {{ ref('dead_letters') }}

),

groups as (

    select
        ---------- which
        fingerprint,
        error_class,
        error_pattern,

        ---------- how many, and since when
        count_if(state = 'open') as open,
        -- a message that was redriven, then discarded, is being tried again: it is not dead
        count_if(state = 'open' or (state = 'discarded' and life_cycle = life_cycles)) as dead,
        count(*) as died,
        min(dead_at) as first_seen,
        max(dead_at) as last_seen,

        ---------- where
        sort_array(collect_set(original_topic)) as topics,
        sort_array(collect_set(consumer_group)) as consumer_groups,
        max_by(message_id, struct(dead_at, message_id)) as sample_message_id
    from dead_letters
    group by fingerprint, error_class, error_pattern

)

select * from groups
