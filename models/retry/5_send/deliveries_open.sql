-- deliveries_open: the deliveries without a closing result and without a successor, each once, due or not.
with

deliveries as (

    select * from {{ ref('deliveries') }}
    where kind is not null

),

first_runs as (

    {{ first_runs('deliveries') }}

),

results as (

    select * from {{ ref('publish_results') }}

),

closed as (

    select
        delivery_id,
        due_at
    from results
    where outcome in {{ closing_outcomes() }}

),

postponed as (

    select
        delivery_id,
        due_at,
        -- null after an unknown outcome of which it was found out that nothing was sent
        max_by(not_before, batch) as not_before
    from results
    where outcome in ('unknown', 'absent')
    group by delivery_id, due_at

),

answered as (

    {{ deliveries_answered(ref('deliveries')) }}

),

waiting as (

    -- as long as a reader restricts due_at and due_hour, the other sides of these joins are small enough to be broadcast: payloads are not moved
    select
        deliveries.* except (error_stack, key, value, headers, by_reference),
        deliveries.error_stack,
        deliveries.key,
        deliveries.value,
        deliveries.headers,
        deliveries.by_reference,
        postponed.not_before
    from deliveries
    left semi join first_runs
        on
            deliveries.batch = first_runs.batch
            and deliveries.due_hour = first_runs.due_hour
            and deliveries.decide_run = first_runs.decide_run
    left anti join closed
        on
            deliveries.delivery_id = closed.delivery_id
            and deliveries.due_at = closed.due_at
    left anti join answered
        on
            deliveries.delivery_id = answered.delivery_id
            and deliveries.due_at = answered.due_at
    left join postponed
        on
            deliveries.delivery_id = postponed.delivery_id
            and deliveries.due_at = postponed.due_at

)

select * from waiting
