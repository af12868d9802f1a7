-- destinations_chosen: what each reason leads to, where that is to go, and what forbids it.
with

failures as (

    select * from {{ ref('reasons_given') }}

),

decided as (

    select
        *,
        case
            when policy.on_exhausted = 'drop' and reason in {{ reasons_where(decision='dropped') }} then 'dropped'
            when dead_letter_topic = '{{ no_topic() }}' and reason in {{ reasons_where(decision='parked') }} then 'parked'
            {%- for decision in decision_reasons() | map(attribute='decision') | unique if decision not in ('dropped', 'parked') %}
            when reason in {{ reasons_where(decision=decision) }} then '{{ decision }}'
            {%- endfor %}
        end as decision,
        -- nothing new has failed: what is sent now is what was to be sent before, for the same reason
        reason = 'dead_letter_failed' or reason in {{ order_kinds('send_anew') }} as is_sent_anew,
        reason = 'dead_letter_failed' or reason in {{ order_kinds() }} as keeps_its_error,
        -- of what could not be placed, only the topic is known in which it was reported
        reason = 'redrive' and exists(source_topics, t -> {{ topic_matches('original_topic', 't') }}) as has_no_origin
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
            when is_failed_send and decision = 'retry' and answered.kind = 'redrive' then answered.topic
            when decision = 'redrive' and coalesce(order_detail, 'retry') not in ('retry', 'original') then order_detail
            when has_no_origin then null
            when decision = 'redrive' and order_detail = 'original' then original_topic
            when decision = 'orphan' then concat(report_topic, '.dlq')
            when is_tried_again and has_no_group and contains(retry_topic, '{group}') then original_topic
            when is_tried_again
                then {{ topic_from_template('retry_topic', 'original_topic', "coalesce(consumer_group, '')", "error_kind") }}
            when decision = 'dead_letter' and has_no_group and contains(dead_letter_topic, '{group}') then concat(original_topic, '.dlq')
            when decision = 'dead_letter'
                then {{ topic_from_template('dead_letter_topic', 'original_topic', "coalesce(consumer_group, '')", "error_kind") }}
        end as destination
    from sorted

),

checked as (

    -- where it may go: a legal name that no source reads, or what we send would come back as a report; and no internal one
    select
        * except (is_sent, has_no_group),
        case
            when not is_sent then null
            when destination is null and has_no_origin then 'no_original_topic'
            when destination is null then 'no_route'
            when {{ kafka_topic('destination') }} is null then 'destination_not_legal'
            when exists(source_topics, t -> {{ topic_matches('destination', 't') }}) then 'destination_is_a_source'
            -- who may report failures must not write Kafka's own topics, nor give commands, by way of the loop
            when {{ is_internal_topic('destination') }} then 'destination_is_internal'
        end as objection
    from addressed

)

select * from checked
