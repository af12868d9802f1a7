-- named_deliveries: the delivery that an event names: an order by its delivery_id, a report by its pointer. While the event is undecided, the loop
-- does not send that delivery: the decision may cancel it, replace it, or show that it was sent. Readers must restrict batch.
{{ config(materialized='view', contract={'enforced': true}) }}

with

events as (

    select * from {{ ref('events') }}

),

named as (

    -- a pointer is not verified here: a false one delays the delivery that it names until the report is decided, and no longer
    select
        batch,
        case
            when delivery_id is not null then delivery_id
            when kind = 'report' then {{ utf8_text(header_bytes('headers', 'redrive-delivery')) }}
        end as delivery_id
    from events

)

select * from named
where delivery_id is not null
