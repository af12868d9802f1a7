-- payloads_gathered: the payload of each input: of a report its own record, of an order or a failed send the record of its delivery.
with

events as (

    select
        {{ event_input_id('events') }} as input_id,
        key,
        value,
        headers,
        {{ utf8_text(header_bytes('headers', 'redrive-header-profile')) }} as earlier_profile,
        cast(null as string) as payload_delivery,
        cast(null as timestamp) as payload_due,
        cast(null as bigint) as payload_bytes,
        true as is_report
    from {{ ref('events') }} as events
    where {{ in_this_run('batch') }} and (kind = 'report' or delivery_id is null)

),

about_deliveries as (

    -- failed sends and orders carry no payload: they get that of their delivery
    select
        {{ result_input_id('publish_results') }} as input_id,
        delivery_id,
        due_at
    from {{ ref('publish_results') }} as publish_results
    where outcome = 'failed' and {{ in_this_run('batch') }}

    union all

    select
        {{ event_input_id('events') }} as input_id,
        delivery_id,
        due_at
    from {{ ref('events') }} as events
    where kind <> 'report' and delivery_id is not null and {{ in_this_run('batch') }}

),

first_letters as (

    -- a dead letter that is written again, as Kafka refused it, keeps no payload: a redrive of it needs that of the first
    select
        delivery_id,
        due_at,
        key,
        value,
        headers
    from {{ wheel() }} as deliveries
    where {{ dues_in_bounds('due_at', 'payload') }}

),

sent_before as (

    select
        about_deliveries.input_id,
        coalesce(deliveries.key, first_letters.key) as key,
        coalesce(deliveries.value, first_letters.value) as value,
        coalesce(deliveries.headers, first_letters.headers) as headers,
        cast(null as string) as earlier_profile,
        deliveries.payload_delivery,
        deliveries.payload_due,
        deliveries.payload_bytes,
        false as is_report
    from about_deliveries
    left join {{ wheel() }} as deliveries
        on
            about_deliveries.delivery_id = deliveries.delivery_id
            and about_deliveries.due_at = deliveries.due_at
            and {{ dues_in_bounds('deliveries.due_at') }}
    left join first_letters
        on
            deliveries.payload_delivery = first_letters.delivery_id
            and deliveries.payload_due = first_letters.due_at

),

gathered as (

    select * from events
    union all
    select distinct * from sent_before

)

select {{ in_few_partitions() }} * from gathered
