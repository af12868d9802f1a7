-- payloads_gathered: the payload of each input: for a report its own record, for an order or a failed send the record of its delivery.
with

events as (

    select
        {{ event_input_id('events') }} as input_id,
        key,
        value,
        headers,
        cast(null as boolean) as by_reference,
        cast(null as string) as error_stack,
        {{ utf8_text(header_bytes('headers', 'redrive-header-profile')) }} as earlier_profile,
        cast(null as string) as payload_delivery,
        cast(null as timestamp) as payload_due,
        cast(null as bigint) as payload_bytes,
        true as is_report
    from {{ ref('events') }} as events
    where {{ in_this_run('batch') }} and (kind = 'report' or delivery_id is null) and kind <> 'row'

),

about_deliveries as (

    -- failed sends and orders have no payload: they get that of their delivery
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

answered as (

    select * from {{ wheel() }}
    where {{ dues_in_bounds('due_at') }}

),

first_letters as (

    -- a dead letter that is written again, as Kafka refused it, keeps no payload: a redrive of it needs that of the first
    select
        delivery_id,
        due_at,
        key,
        value,
        headers,
        by_reference
    from {{ wheel() }} as deliveries
    where {{ dues_in_bounds('due_at', 'payload') }}

),

sent_before as (

    select
        about_deliveries.input_id,
        coalesce(answered.key, first_letters.key) as key,
        coalesce(answered.value, first_letters.value) as value,
        coalesce(answered.headers, first_letters.headers) as headers,
        coalesce(first_letters.by_reference, answered.by_reference) as by_reference,
        answered.error_stack,
        cast(null as string) as earlier_profile,
        answered.payload_delivery,
        answered.payload_due,
        answered.payload_bytes,
        false as is_report
    from about_deliveries
    left join answered
        on
            about_deliveries.delivery_id = answered.delivery_id
            and about_deliveries.due_at = answered.due_at
    left join first_letters
        on
            answered.payload_delivery = first_letters.delivery_id
            and answered.payload_due = first_letters.due_at

),

gathered as (

    select * from events
    union all
    select distinct * from sent_before

)

select {{ in_few_partitions() }} * from gathered
