-- last_results: the result that closed each delivery; if none did, its last one.
with

results as (

    select
        *,
        row_number() over (
            partition by delivery_id, due_at
            order by case when outcome in {{ closing_outcomes() }} then 0 else 1 end asc, batch desc
        ) as from_last
    from {{ ref('publish_results') }}

),

last_results as (

    select * except (from_last) from results
    where from_last = 1

)

select * from last_results
