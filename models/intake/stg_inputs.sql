-- stg_inputs: the inputs of the decide step, events and failed sends, in the same columns.
with

reports as (

    select * from {{ ref('stg_reports') }}

),

others as (

    select * from {{ ref('stg_other_inputs') }}

),

gathered as (

    select
        ---------- which
        input_id,
        batch,
        recorded_at,
        input_kind,
        source,
        dialect,
        speaks_for,
        adopts,
        report_topic,
        report_partition,
        report_offset,
        report_index,
        order_detail,

        ---------- what failed
        named_topic,
        named_partition,
        named_offset,
        origin_topic,
        origin_partition,
        origin_offset,
        origin_timestamp,
        has_no_place,
        consumer_group,
        content_hash,

        ---------- how often it was tried elsewhere, and when it is due, if its source is trusted in that
        case when trusts_counts then attempts end as stated_attempts,
        case when trusts_counts then due end as stated_due,

        ---------- which delivery it says that it answers
        case when {{ pointer_in_time('reports') }} then pointer_delivery end as pointer_delivery,
        case when {{ pointer_in_time('reports') }} then pointer_due end as pointer_due,

        ---------- why it failed, and when
        error_class,
        error_message,
        causes,
        error_code,
        rule_headers,
        stated_kind,
        cast(null as string) as sent_error_kind,
        problems,
        failed_at,
        happened_at
    from reports

    union all

    select
        ---------- which
        input_id,
        batch,
        recorded_at,
        input_kind,
        source,
        null as dialect,
        null as speaks_for,
        false as adopts,
        null as report_topic,
        null as report_partition,
        null as report_offset,
        null as report_index,
        row_id as order_detail,

        ---------- what failed
        null as named_topic,
        null as named_partition,
        null as named_offset,
        null as origin_topic,
        null as origin_partition,
        null as origin_offset,
        null as origin_timestamp,
        false as has_no_place,
        null as consumer_group,
        null as content_hash,

        ---------- how often it was tried elsewhere, and when it is due
        null as stated_attempts,
        null as stated_due,

        ---------- which delivery it says that it answers
        pointer_delivery,
        pointer_due,

        ---------- why it failed, and when
        error_class,
        error_message,
        array() as causes,
        null as error_code,
        array() as rule_headers,
        null as stated_kind,
        error_kind as sent_error_kind,
        array() as problems,
        recorded_at as failed_at,
        happened_at
    from others

)

select * from gathered
