-- stg_reports: each event, its headers decoded by the dialect of its source. It has no payloads: they are joined at the end of the decide step.
-- Longer than other models, because a dbt unit test covers one model, and the tests of this one go from a report's bytes to the decoded values.
{%- set fields = var('dialect_fields') | reject('equalto', 'message_headers') | list %}

{#- When a report was sent, as far as that tells when the failure happened: not if a framework has copied the failed record's own time, and not if the
    reporter's clock is far ahead. -#}
{%- set sent_at -%}
    case
        when
            (stamped_by_broker or not coalesce(says.copies_timestamp, false))
            and (kind <> 'report' or record_timestamp <= recorded_at + interval {{ var('max_stated_ahead_hours') }} hours)
            then record_timestamp
    end
{%- endset %}

with

events as (

    -- rows of outboxes say nothing about a failure
    select * from {{ ref('events') }}
    where kind <> 'row'

),

rules as (

    select
        sources,
        dialects,
        header_names
    from {{ ref('rules') }}

),

declared as (

    select
        events.*,
        rules.header_names,
        rules.dialects,
        try_element_at(filter(rules.sources, s -> s.source = events.source), 1) as declared
    from events
    cross join rules

),

attributed as (

    select
        * except (declared, record_timestamp),
        {{ plausible_time('record_timestamp') }} as record_timestamp,
        case
            when declared.dialect <> '{{ var('any_dialect') }}' then declared.dialect
            when kind = 'report' then {{ dialect_recognised('dialects', 'headers') }}
        end as dialect,
        coalesce(kind = 'report' and declared.dialect = '{{ var('any_dialect') }}', false) as is_any_dialect,
        declared.speaks_for,
        nullif(declared.consumer_group, '') as declared_group,
        coalesce(declared.states_kind, false) as states_kind,
        coalesce(declared.trusts_counts = 'true', false) as trusts_counts,
        declared.payload as source_payload,
        -- a refused report that is decided anew for an operator: its delivery_id names the refusal, not a delivery that it answers
        kind = 'report' and delivery_id is not null as is_reread,
        kind = 'report' and coalesce(declared.adopt = 'dead', false) as adopts
    from declared

),

described as (

    select
        * except (dialects),
        dialects[dialect] as says
    from attributed

),

extracted as (

    select
        *,
        struct(
            {%- for field in fields %}
            {{ dialect_field(field) }} as {{ field }}{{ ',' if not loop.last }}
            {%- endfor %}
        ) as reported,
        case when kind = 'report' then {{ utf8_text(header_bytes('headers', 'redrive-delivery')) }} end as header_delivery,
        case when kind = 'report' then {{ utf8_text(header_bytes('headers', 'redrive-due')) }} end as header_due,
        case when kind = 'report' then {{ content_hash('key', 'value') }} end as content_hash
    from described

),

decoded as (

    -- bytes from reports become values only after a check of form and range; a value that fails it is null, and its field is in `problems`
    -- (but not fields of the error or of the pointer)
    select
        *,
        struct(
            {%- for hop in ['named', 'origin'] %}
            {{ kafka_topic(dialect_text('reported.' ~ hop ~ '_topic')) }} as {{ hop }}_topic,
            cast({{ dialect_number('reported.' ~ hop ~ '_partition', limits('partition')) }} as int) as {{ hop }}_partition,
            {{ dialect_number('reported.' ~ hop ~ '_offset', limits('offset')) }} as {{ hop }}_offset,
            {%- endfor %}
            {{ dialect_moment('reported.origin_timestamp') }} as origin_timestamp,
            {{ known_group(dialect_text('reported.consumer_group')) }} as consumer_group,
            {{ dialect_moment('reported.failed_at') }} as failed_at,
            cast({{ dialect_number('reported.attempts', limits('attempts')) }} as int) as attempts,
            {{ dialect_moment('reported.due') }} as due,
            {{ utf8_repaired('reported.stage.bytes', 64) }} as stage
        ) as read,
        {{ utf8_repaired('reported.error_class.bytes', 512) }} as error_class,
        {{ utf8_repaired('reported.error_wrapper.bytes', 512) }} as error_wrapper,
        {{ utf8_repaired('reported.error_message.bytes', var('max_error_message_bytes')) }} as error_message,
        -- the causes may be at the end of a stack trace (Java) or at its beginning (Python): more of it is read for them than is kept
        make_valid_utf8(cast({{ both_ends('reported.error_stack.bytes', var('max_read_stack_bytes')) }} as string)) as read_stack,
        upper({{ dialect_text('reported.error_code') }}) as stated_code,
        {{ error_kind(dialect_text('reported.error_kind')) }} as stated_kind
    from extracted

),

believed as (

    -- A stated time that is too old, or far ahead, comes from a wrong clock (seconds taken for milliseconds, a device without a battery): it is ignored.
    -- That of an adopted dead letter or a report that is decided anew may be old: no delay counts from it.
    select
        *,
        case
            when read.failed_at > recorded_at + interval {{ var('max_stated_ahead_hours') }} hours then null
            when adopts or is_reread or read.failed_at >= recorded_at - interval {{ var('max_stated_age_days') }} days then read.failed_at
        end as stated_at,
        case when read.due <= recorded_at + interval {{ var('max_stated_delay_hours') }} hours then read.due end as due
    from decoded

),

reports as (

    select
        ---------- which
        {{ event_input_id('believed') }} as input_id,
        batch,
        recorded_at,
        kind as input_kind,
        source,
        dialect,
        speaks_for,
        adopts,
        trusts_counts,
        topic as report_topic,
        -- of a report that is decided anew, detail is the id of its first event, which has the coordinates of the record
        case when is_reread then try_cast(split_part(detail, '/', -3) as int) else partition end as report_partition,
        case when is_reread then try_cast(split_part(detail, '/', -2) as bigint) else offset end as report_offset,
        index as report_index,
        detail as order_detail,

        ---------- what failed
        read.named_topic,
        read.named_partition,
        read.named_offset,
        -- what a redrive or a purge is about: whether it has failed again since is looked up there
        case when kind in ('redrive', 'purge') then {{ kafka_topic(place_in_delivery(1)) }} else read.origin_topic end as origin_topic,
        case when kind in ('redrive', 'purge') then try_cast({{ place_in_delivery(2) }} as int) else read.origin_partition end as origin_partition,
        case when kind in ('redrive', 'purge') then try_cast({{ place_in_delivery(3) }} as bigint) else read.origin_offset end as origin_offset,
        read.origin_timestamp,
        -- a dialect that tells no place in a topic at all: the message is named after its report
        coalesce(size(says.fields.origin_offset) = 0, false) as has_no_place,
        coalesce({{ known_group('declared_group') }}, read.consumer_group) as consumer_group,
        -- null: the content is not in the report
        case
            when not (read.origin_offset is not null and {{ is_by_reference('source_payload', 'says', 'key', 'value') }}) then content_hash
        end as content_hash,

        ---------- which delivery it says that it answers
        case
            when kind <> 'report' then delivery_id
            when length(header_delivery) <= 1024 then header_delivery
        end as pointer_delivery,
        case when kind <> 'report' then due_at else {{ point_in_time('header_due') }} end as pointer_due,

        ---------- how often it was tried, and when it is to be tried again, as the report says
        -- not `greatest` alone, which ignores a null
        case when read.attempts is not null then greatest(read.attempts - says.attempts_ahead, 1) end as attempts,
        believed.due,

        ---------- why it failed, and when
        read.stage,
        error_class,
        error_message,
        {{ stack_text('reported.error_stack.bytes') }} as error_stack,
        {{ cause_chain('error_wrapper', 'error_class', 'error_message', 'read_stack') }} as causes,
        -- confluent-kafka writes the code of an error into its text
        coalesce(stated_code, nullif(regexp_extract(error_message, 'KafkaError[{]code=([A-Z_]+)', 1), '')) as error_code,
        -- that a message was not tried, as an earlier one has failed, only its consumer knows: any source may state it
        case when states_kind or stated_kind = 'follows' then stated_kind end as stated_kind,
        -- the headers that error rules look at, in the order of header_names
        -- null: there is no such header; one without a value is there
        transform(
            transform(header_names, n -> try_element_at(filter(headers, h -> h.key = n), -1)),
            h -> case when h is not null then coalesce(make_valid_utf8(cast(substring(h.value, 1, 256) as string)), '') end
        ) as rule_headers,
        array_compact(array(
            -- intake could not read the record's timestamp or headers: the rest of the report is used all the same
            case when kind = 'report' and not is_reread and detail is not null then 'record' end,
            -- its headers show no dialect, or several
            case when is_any_dialect and dialect is null then 'dialect' end,
            -- some frameworks write -1 where a record has no timestamp
            case
                when
                    reported.origin_timestamp is not null and read.origin_timestamp is null
                    and reported.origin_timestamp.bytes not in (unhex('ffffffffffffffff'), unhex('2d31'))
                    then 'origin_timestamp'
            end,
            {%- for field in fields if not field.startswith('error_') and field != 'origin_timestamp' %}
            case
                when reported.{{ field }} is not null and {{ {'failed_at': 'stated_at', 'due': 'believed.due'}.get(field, 'read.' ~ field) }} is null
                    then '{{ field }}'
            end{{ ',' if not loop.last }}
            {%- endfor %}
        )) as problems,
        record_timestamp,
        stated_at,
        -- The delay and max_elapsed count from this time: for a report that is decided anew, recorded_at. The record's timestamp
        -- counts only if the broker set it, or for adopted dead letters, which wait for nothing.
        case
            when is_reread then recorded_at
            else coalesce(stated_at, case when stamped_by_broker or adopts then record_timestamp end, recorded_at)
        end as failed_at,
        coalesce(stated_at, {{ sent_at }}, case when is_reread then due_at end, recorded_at) as happened_at
    from believed

)

select * from reports
