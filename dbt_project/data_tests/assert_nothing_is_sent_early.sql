-- assert_nothing_is_sent_early: fails if a delivery was sent before it was due, by the loop's clock. Of what was found in a topic after a kill
-- (found_by), only the record's own time is known, which may be the broker's.
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
    where outcome = 'delivered' and sent_at < due_at and found_by is null

)

select * from validation_errors
