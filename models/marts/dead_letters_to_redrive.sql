-- dead_letters_to_redrive: open dead letters that a redrive rule asks to send again now. Nothing is sent before somebody runs the triage.
with

dead_letters as (

    select * from {{ ref('dead_letters') }}
    where state = 'open'

),

rules as (

    select * from {{ ref('redrive_rules_ranked') }}

),

commanded as (

    -- not listed again: dead letters that a command lists and whose order isn't decided, even if it is paused, and refused ones, which need a person
    select distinct delivery_id from {{ ref('commanded_messages') }}
    where state in ('listed', 'issued') or (what = 'redrive' and state = 'refused')

),

matched as (

    select
        dead_letters.*,
        try_element_at(filter(
            rules.redrive_rules,
            r -> coalesce(r.error_class = dead_letters.error_class, coalesce(dead_letters.error_class, '') rlike r.class_pattern, false)
                and coalesce({{ topic_matches('dead_letters.original_topic', 'r.topic') }}, false)
                and (r.consumer_group = '*' or r.consumer_group <=> dead_letters.consumer_group)
        ), 1) as wanted
    from dead_letters
    cross join rules

),

dead_letters_to_redrive as (

    select
        ---------- which
        matched.message_id,
        matched.delivery_id,
        matched.due_at,

        ---------- who wants it
        matched.wanted.rule,
        matched.wanted.why,
        matched.life_cycles,
        matched.wanted.max_life_cycles,

        ---------- what it died of
        matched.dead_at,
        matched.error_class,
        matched.error_kind,
        matched.original_topic,
        matched.consumer_group
    from matched
    left anti join commanded on matched.delivery_id = commanded.delivery_id
    where
        matched.life_cycles < matched.wanted.max_life_cycles
        and matched.dead_at + make_dt_interval(0, 0, 0, matched.wanted.delay_ms / 1000.0) <= current_timestamp()

)

select * from dead_letters_to_redrive
