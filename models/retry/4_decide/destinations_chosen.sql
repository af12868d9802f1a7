-- destinations_chosen: the decision that follows from each reason, its destination, and what forbids sending there (the objection).
with

failures as (

    select * from {{ ref('reasons_given') }}

),

decided as (

    select
        *,
        case
            when policy.on_exhausted = 'drop' and reason in {{ reasons_where(decision='dropped') }} then 'dropped'
            when dead_letter_topic = '{{ var('no_topic') }}' and reason in {{ reasons_where(decision='parked') }} then 'parked'
            {%- for decision in decision_reasons() | map(attribute='decision') | unique if decision not in ('dropped', 'parked') %}
            when reason in {{ reasons_where(decision=decision) }} then '{{ decision }}'
            {%- endfor %}
        end as decision,
        -- processing has not failed again: the delivery is repeated, with the same record to the same topic
        reason = 'dead_letter_failed' or reason in {{ order_kinds('send_anew') }} as is_sent_anew,
        reason = 'dead_letter_failed' or reason in {{ order_kinds() }} as keeps_its_error,
        -- the original topic of an orphan is unknown: its original_topic is the report topic
        reason = 'redrive' and {{ is_read_by_a_source('original_topic', 'source_topics') }} as has_no_origin
    from failures

),

sorted as (

    select
        *,
        decision in {{ decisions_where(sends='yes') }} as is_sent,
        decision in ('retry', 'redrive') as is_tried_again,
        consumer_group is null as has_no_group
    from decided

),

addressed as (

    select
        *,
        case
            when is_sent_anew then answered.topic
            when is_failed_send and decision = 'retry' and answered.kind in ('redrive', 'publish') then answered.topic
            -- a row of an outbox goes where it was to go, and not to a retry topic
            when decision = 'redrive' and answered.outbox_row is not null and coalesce(order_detail, 'retry') = 'retry' then original_topic
            when decision = 'redrive'
                then {{ redrive_destination('order_detail', 'has_no_origin', 'retry_topic', 'original_topic', 'consumer_group', 'error_kind') }}
            when decision = 'orphan' then {{ dead_letter_topic_of_reports('report_topic') }}
            when decision = 'retry' then {{ retry_destination('retry_topic', 'original_topic', 'consumer_group', 'error_kind') }}
            when decision = 'dead_letter' and has_no_group and contains(dead_letter_topic, '{group}') then concat(original_topic, '.dlq')
            when decision = 'dead_letter'
                then {{ topic_from_template('dead_letter_topic', 'original_topic', "coalesce(consumer_group, '')", "error_kind") }}
        end as destination
    from sorted

),

checked as (

    select
        * except (is_sent, has_no_group),
        case when not is_sent then null else {{ destination_objection('destination', 'has_no_origin', 'source_topics') }} end as objection
    from addressed

)

select * from checked
