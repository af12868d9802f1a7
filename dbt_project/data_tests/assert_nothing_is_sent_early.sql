-- Guards against a send before its due time, whatever the reason. Does not test the clocks of the brokers.
with

results as (

    select * from {{ ref('publish_results') }}

),

validation_errors as (

    select
        delivery_id,
        due_at,
        sent_at
    from results
    where outcome = 'delivered' and sent_at < due_at

)

select * from validation_errors
