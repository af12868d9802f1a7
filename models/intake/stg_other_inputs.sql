-- stg_other_inputs: the inputs of the decide step that are no records of Kafka: failed sends, and rows of outboxes. Of rows only what names them: the
-- model `rows_decided` decides about them.
with

failed_sends as (

    select * from {{ ref('stg_failed_sends') }}

),

events as (

    select * from {{ ref('events') }}
    where kind = 'row'

),

gathered as (

    select
        input_id,
        batch,
        recorded_at,
        input_kind,
        null as source,
        null as row_id,
        pointer_delivery,
        pointer_due,
        error_class,
        error_message,
        error_kind,
        recorded_at as happened_at
    from failed_sends

    union all

    select
        {{ event_input_id('events') }} as input_id,
        batch,
        recorded_at,
        kind as input_kind,
        source,
        detail as row_id,
        null as pointer_delivery,
        null as pointer_due,
        null as error_class,
        null as error_message,
        null as error_kind,
        record_timestamp as happened_at
    from events

)

select * from gathered
