-- reporters: who reports failures, through which source and in which dialect, by the hour in which the reports were taken in; and how many of the reports
-- have something that could not be read. Restrict recorded_hour: each report of these hours is decoded.
with

reports as (

    select * from {{ ref('stg_reports') }}
    where input_kind = 'report'

),

reporters as (

    select
        date_trunc('hour', recorded_at) as recorded_hour,
        source,
        consumer_group,
        dialect,
        count(*) as reports,
        count_if(size(problems) > 0) as with_problems,
        array_sort(array_distinct(flatten(collect_list(problems)))) as problems,
        max(recorded_at) as last_at
    from reports
    group by date_trunc('hour', recorded_at), source, consumer_group, dialect

)

select * from reporters
