-- decisions_made: the decision about each input, with its reason, its destination and its due time. docs/lifecycle.md shows which may follow which.
with

turns as (

    select * from {{ ref('turns_taken') }}

),

allowed as (

    select
        *,
        objection is null as is_allowed,
        objection is null and is_tried_again as is_another_try,
        objection is null and decision in ('dead_letter', 'orphan') as sends_dead_letter,
        objection is null and reason = 'dead_letter_failed' as sends_dead_letter_again
    from turns

)

select
    ---------- which
    input_id,
    -- the text whose hash is in the delivery id: the input id, but for a failed send the id of the delivery that failed
    case when is_failed_send then answered.delivery_id else input_id end as named_after,
    batch,
    recorded_at,
    source,
    dialect,
    message_id,
    life_cycle,
    attempt,
    publish_attempt,
    max_attempts,
    original_topic,
    original_partition,
    original_offset,
    original_timestamp,
    consumer_group,
    report_topic,
    report_partition,
    report_offset,

    ---------- what is decided
    case when is_allowed then decision else 'refused' end as decision,
    coalesce(objection, reason) as reason,
    case when sends_dead_letter then 'dead_letter' when is_another_try then if(answered.outbox_row is not null, 'publish', decision) end as kind,
    case when is_allowed then destination end as topic,
    original_partition as partition,
    {% set due %}
        case
            when is_another_try then retry_at
            when sends_dead_letter_again then recorded_at + make_dt_interval(0, 0, 0, delay_ms / 1000.0)
            else recorded_at
        end
    {%- endset %}
    {{ whole_ms(due) }} as due_at,
    -- no consumer has failed to process what Kafka has not taken yet
    case when is_another_try and answered.outbox_row is null then {{ breaker_key('circuit_breaker_per', 'consumer_group', 'original_topic', 'original_partition') }} end as breaker_key,
    case when is_another_try then if(answered.outbox_row is not null, 'all', publish_charge) end as publish_charge,
    case when sends_dead_letter_again or (is_another_try and decision = 'retry') then delay_ms end as delay_ms,

    ---------- what may be kept and shown: for what is sent anew, the same as before
    case when sends_dead_letter then coalesce(if(sends_dead_letter_again, answered.header_profile, header_profile), 'dlq') end as header_profile,
    case when is_sent_anew then coalesce(answered.privacy, privacy) else privacy end as privacy,

    ---------- what it answers
    answered.delivery_id as prior_delivery,
    answered.due_at as prior_due,
    case when standing = 'answer' then answered.headers end as prior_headers,

    ---------- why it failed, and when
    case when keeps_its_error then answered.failed_at else failed_at end as failed_at,
    happened_at,
    first_failed_at,
    case when keeps_its_error then answered.error_class else error_class end as error_class,
    case when keeps_its_error then answered.error_message else error_message end as error_message,
    is_sent_anew,
    case when keeps_its_error then answered.error_kind else error_kind end as error_kind,
    case when keeps_its_error then answered.rule else rule end as rule,
    case when keeps_its_error then answered.matched else matched end as matched,
    passed_over,
    problems,
    policy.policy,
    policy.definition as policy_text,
    rules_hash,
    content_hash,

    ---------- of a message from an outbox
    answered.outbox_row,

    ---------- what it must stay in order with
    -- the records of the topic of reports are no sequence
    case when standing in ('first', 'new_life_cycle', 'answer') then sequence_by end as sequence_by,
    is_sequence_hidden,
    case when standing = 'answer' then answered.sequence end as sequence,
    -- where it is in the burst in which it is sent; null: nothing else of its sequence is sent meanwhile
    case
        when input_kind = 'in_turn' then shiftleft(batch, 24) + report_index
        when answered.outbox_row is not null or is_failed_send or is_sent_anew then answered.sequence_place
    end as sequence_place,
    -- the last failure in its sequence: a follower's event names it
    case
        when input_kind = 'in_turn' then order_detail
        when input_kind = 'report' and error_kind = 'follows' then null
        when input_kind = 'report' then concat_ws('/', report_topic, report_partition, report_offset)
        else answered.sequence_epoch
    end as sequence_epoch
from allowed
