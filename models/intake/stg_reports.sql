-- stg_reports: each event, decoded as its source's dialect says. Narrow: payloads are joined at the very end of the fold.
with

events as (

    select * from {{ ref('events') }}

),

sources as (

    select * from {{ ref('sources') }}

),

attributed as (

    select
        events.*,
        sources.dialect,
        sources.speaks_for,
        nullif(sources.consumer_group, '') as declared_group
    from events
    left join sources on events.source = sources.source

),

decoded as (

    select
        *,
        case dialect
            {%- for name in var('dialects') %}
            when '{{ name }}' then {{ dialect_struct(name, 'headers') }}
            {%- endfor %}
        end as says,
        {{ utf8_text(header_bytes('headers', 'redrive-delivery')) }} as pointer_delivery,
        {{ utf8_text(header_bytes('headers', 'redrive-due')) }} as pointer_due_text,
        {{ content_hash('key', 'value') }} as content_hash
    from attributed

),

reports as (

    select
        ---------- which
        {{ event_cause('decoded') }} as cause,
        batch,
        recorded_at,
        kind as input_kind,
        source,
        dialect,
        speaks_for,
        topic as report_topic,
        partition as report_partition,
        offset as report_offset,
        index as report_index,

        ---------- what failed
        says.named_topic,
        says.named_partition,
        says.named_offset,
        says.origin_topic,
        says.origin_partition,
        says.origin_offset,
        says.origin_timestamp,
        {{ known_group('coalesce(declared_group, says.consumer_group)') }} as consumer_group,
        content_hash,

        ---------- which delivery it says that it answers
        case when length(pointer_delivery) <= 1024 then pointer_delivery end as pointer_delivery,
        {{ point_in_time('pointer_due_text') }} as pointer_due,

        ---------- why it failed, and when
        says.error_class,
        says.error_message,
        says.error_stack,
        says.problems,
        says.failed_at as stated_at,
        coalesce(says.failed_at, case when stamped_by_broker then record_timestamp end, recorded_at) as failed_at,
        coalesce(says.failed_at, record_timestamp, recorded_at) as happened_at
    from decoded

)

select * from reports
