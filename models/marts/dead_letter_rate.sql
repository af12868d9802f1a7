-- dead_letter_rate: how many of a topic's messages died in each hour, against what is usual: a change is news, a count is not.
with

by_class as (

    select * from {{ ref('dead_letters_by_hour') }}

),

by_hour as (

    select
        hour,
        original_topic,
        sum(dead) as dead,
        unix_seconds(hour) div 3600 as hour_number
    from by_class
    group by hour, original_topic

),

remembered as (

    -- hours in which nothing died have no row: `median_of` counts them in
    select
        *,
        collect_list(struct(hour_number, dead)) over (
            partition by original_topic
            order by hour_number
            range between 168 preceding and 1 preceding
        ) as week
    from by_hour

),

compared as (

    select
        *,
        {{ median_of('filter(week, h -> h.hour_number >= remembered.hour_number - 24)', 24) }} as usual_of_the_day,
        {{ median_of('filter(week, h -> (remembered.hour_number - h.hour_number) % 24 = 0)', 7) }} as usual_at_this_hour
    from remembered

),

dead_letter_rate as (

    select
        hour,
        original_topic,
        dead,
        usual_of_the_day,
        usual_at_this_hour,
        dead >= {{ var('unusual_dead_letters_from') }}
            and dead > {{ var('unusual_dead_letters_factor') }} * greatest(usual_of_the_day, usual_at_this_hour) as is_unusual
    from compared

)

select * from dead_letter_rate
