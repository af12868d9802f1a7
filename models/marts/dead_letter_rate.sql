-- dead_letter_rate: how many of a topic's messages died in each hour, compared with what is usual for it: an alert on a change, not on a count.
with

by_class as (

    select * from {{ ref('dead_letters_by_hour') }}

),

begun as (

    -- the hour of the first start of a loop: the decision about it is the first row of `deliveries`. Iceberg has the minimum in file statistics
    select date_trunc('hour', min(due_at)) as first_hour from {{ ref('deliveries') }}

),

by_hour as (

    select
        hour,
        original_topic,
        sum(died) as died,
        unix_seconds(hour) div 3600 as hour_number
    from by_class
    group by hour, original_topic

),

remembered as (

    -- hours in which nothing died have no row; `median_of` counts them as 0
    select
        *,
        collect_list(struct(hour_number, died)) over (
            partition by original_topic
            order by hour_number
            range between 168 preceding and 1 preceding
        ) as week
    from by_hour

),

compared as (

    select
        *,
        {{ median_of('filter(week, h -> h.hour_number >= remembered.hour_number - 24)', 24) }} as median_of_last_24_hours,
        {{ median_of('filter(week, h -> (remembered.hour_number - h.hour_number) % 24 = 0)', 7) }} as median_at_this_hour_of_last_7_days
    from remembered

),

dead_letter_rate as (

    select
        compared.hour,
        compared.original_topic,
        compared.died,
        compared.median_of_last_24_hours,
        compared.median_at_this_hour_of_last_7_days,
        greatest(compared.median_of_last_24_hours, compared.median_at_this_hour_of_last_7_days) as usual,
        -- in the hour of the first start there is nothing to compare with
        compared.hour > begun.first_hour
            and compared.died >= {{ var('unusual_dead_letters_from') }}
            and compared.died > {{ var('unusual_dead_letters_factor') }}
                * greatest(compared.median_of_last_24_hours, compared.median_at_this_hour_of_last_7_days) as is_unusual
    from compared
    cross join begun

)

select * from dead_letter_rate
