-- stg_failed_sends: results with the outcome `failed`: Kafka refused the record or its topic, or the route counts every failed send
-- (`publish_charge` = `all`). Each gets a decision, as a report does.
with

publish_results as (

    select * from {{ ref('publish_results') }}

),

failed as (

    select
        ---------- which
        {{ result_input_id('publish_results') }} as input_id,
        batch,
        recorded_at,
        'failed_send' as input_kind,

        ---------- which delivery
        delivery_id as pointer_delivery,
        due_at as pointer_due,

        ---------- why
        error_name as error_class,
        error_message,
        error_kind
    from publish_results
    where outcome = 'failed'

)

select * from failed
