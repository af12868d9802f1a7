-- named_deliveries: which delivery an event is about, as it says itself: an order, or a report by its pointer.
-- While such an event is undecided, its delivery must not be sent: it may be cancelled, or replaced, or known to have been sent. Restrict batch.
{{ config(materialized='view', contract={'enforced': true}) }}

with

events as (

    select * from {{ ref('events') }}

),

named as (

    -- a pointer counts without a look at what it names: a false one holds a delivery up until the report is decided, and no longer
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
