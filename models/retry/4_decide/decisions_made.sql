-- decisions_made: what happens to each message now, and the reason in one word. docs/lifecycle.md draws it.
with

failures as (

    select * from {{ ref('delays_computed') }}

),

timed as (

    select
        * except (delay_ms),
        case
            when input_kind = 'failed_send' and answered.kind = 'dead_letter' then {{ dead_letter_pause_ms('delay_ms', 'publish_attempt') }}
            else delay_ms
        end as delay_ms,
        greatest(failed_at + make_dt_interval(0, 0, 0, delay_ms / 1000.0), recorded_at) as retry_at,
        case
            when input_kind = 'report' then coalesce(answered.first_failed_at, failed_at)
            -- nothing has failed yet in this life
            when input_kind <> 'redrive' then answered.first_failed_at
        end as first_failed_at
    from failures

),

wanted as (

    select
        *,
        case
            when standing = 'noted' then input_kind
            -- it is dead already, and lies where it was read: wherever it came from
            when adopts and standing in ('first', 'new_life', 'answer', 'orphan', 'unreadable') then 'adopted'
            when standing in (
                'unknown_source', 'not_spoken_for', 'answers_a_dead_letter', 'known_already', 'answered_already',
                'orphan', 'unreadable', 'lost', 'no_such_delivery', 'wrong_kind_of_delivery', 'payload_was_dropped',
                'not_waiting', 'not_discarded'
            ) then standing
            when input_kind = 'failed_send' and answered.kind = 'dead_letter' then 'dead_letter_failed'
            when input_kind in {{ order_kinds() }} then input_kind
            when input_kind = 'failed_send' and error_kind in ('fatal', 'poison') then 'send_failed'
            -- there was no room for it, and it charged nothing: a bound that was lowered meanwhile is for the next send that fails
            when input_kind = 'failed_send' and error_kind = 'backpressure' then error_kind
            when input_kind = 'failed_send' and publish_attempt >= policy.max_attempts then 'send_failed'
            when input_kind = 'failed_send' then coalesce(error_kind, 'retriable')
            when policy.policy is null then 'no_route'
            when error_kind in ('fatal', 'poison') then error_kind
            -- there was no room for it: that is no reason to die
            when error_kind = 'backpressure' then error_kind
            when attempt >= max_attempts then 'exhausted'
            when retry_at > first_failed_at + make_dt_interval(0, 0, 0, policy.max_elapsed_ms / 1000.0) then 'out_of_time'
            else error_kind
        end as reason
    from timed

),

sorted as (

    select
        *,
        case
            when reason in ('start', 'gap', 'command') then 'note'
            when reason in ('known_already', 'answered_already', 'not_waiting') then 'duplicate'
            when reason in ('orphan', 'unreadable') then 'orphan'
            when reason = 'adopted' then 'adopted'
            when reason in (
                'unknown_source', 'not_spoken_for', 'answers_a_dead_letter', 'no_route', 'no_such_delivery', 'wrong_kind_of_delivery',
                'payload_was_dropped', 'not_discarded'
            ) then 'refused'
            when reason in ('exhausted', 'out_of_time') and policy.on_exhausted = 'drop' then 'dropped'
            when reason in ('fatal', 'poison', 'exhausted', 'out_of_time', 'send_failed') and dead_letter_topic = '{{ no_topic() }}' then 'parked'
            when reason in ('fatal', 'poison', 'exhausted', 'out_of_time', 'send_failed', 'dead_letter_failed') then 'dead_letter'
            when reason in ('retriable', 'quota', 'backpressure', 'fenced', 'blocking') or reason in {{ order_kinds('send_anew') }} then 'retry'
            when reason = 'redrive' then 'redrive'
            when reason = 'cancel' then 'cancelled'
            when reason = 'discard' then 'discarded'
            when reason = 'restore' then 'restored'
            when reason = 'note' then 'noted'
            when reason = 'purge' then 'purged'
        end as decision,
        -- nothing new has failed: what is sent now is what was to be sent before, for the same reason
        reason = 'dead_letter_failed' or reason in {{ order_kinds('send_anew') }} as is_sent_anew,
        reason = 'dead_letter_failed' or reason in {{ order_kinds() }} as keeps_its_error,
        -- of what could not be placed, only the topic is known in which it was reported
        reason = 'redrive' and exists(source_topics, t -> {{ topic_matches('original_topic', 't') }}) as has_no_origin
    from wanted

),

addressed as (

    select
        *,
        case
            when is_sent_anew then answered.topic
            when input_kind = 'failed_send' and decision = 'retry' and answered.kind = 'redrive' then answered.topic
            when decision = 'redrive' and coalesce(order_detail, 'retry') not in ('retry', 'original') then order_detail
            when has_no_origin then null
            when decision = 'redrive' and order_detail = 'original' then original_topic
            when decision = 'orphan' then concat(report_topic, '.dlq')
            when decision in ('retry', 'redrive') and consumer_group is null and contains(retry_topic, '{group}') then original_topic
            when decision in ('retry', 'redrive')
                then {{ topic_from_template('retry_topic', 'original_topic', "coalesce(consumer_group, '')", "error_kind") }}
            when decision = 'dead_letter' and consumer_group is null and contains(dead_letter_topic, '{group}')
                then concat(original_topic, '.dlq')
            when decision = 'dead_letter'
                then {{ topic_from_template('dead_letter_topic', 'original_topic', "coalesce(consumer_group, '')", "error_kind") }}
        end as destination
    from sorted

),

checked as (

    -- where it may go: a legal name that no source reads, or what we send would come back as a report; and no internal one
    select
        *,
        case
            when decision not in ('retry', 'redrive', 'dead_letter', 'orphan') then null
            when destination is null and has_no_origin then 'no_original_topic'
            when destination is null then 'no_route'
            when {{ kafka_topic('destination') }} is null then 'destination_not_legal'
            when exists(source_topics, t -> {{ topic_matches('destination', 't') }}) then 'destination_is_a_source'
            -- who may report failures must not write Kafka's own topics, nor give commands, by way of the loop
            when {{ is_internal_topic('destination') }} then 'destination_is_internal'
        end as objection
    from addressed

),

claimed as (

    -- of those who answer the same delivery, or report the same message first, the first one that anything comes of takes the turn
    select
        *,
        case
            -- what is only said about a dead letter takes nobody's turn
            when standing = 'answer' and input_kind not in {{ order_kinds('annotate') }} then struct(answered.delivery_id as name, answered.due_at as due_at)
            when standing in ('first', 'new_life') then struct(message_id as name, cast(null as timestamp) as due_at)
        end as claim,
        objection is null and decision in {{ decisions_where(succeeds='yes') }} as succeeds
    from checked

),

ordered as (

    select
        * except (claim, succeeds),
        claim is not null and coalesce(
            max(succeeds) over (
                partition by coalesce(claim.name, cause), claim.due_at
                order by
                    batch,
                    case when input_kind = 'report' then 0 else 1 end,
                    report_topic, report_partition, report_offset, report_index
                rows between unbounded preceding and 1 preceding
            ),
            false
        ) as is_too_late
    from claimed

),

settled as (

    -- what comes too late charges and sends nothing
    select
        * except (
            is_too_late, standing, attempt, publish_attempt, decision, reason, objection, destination, is_sent_anew, keeps_its_error
        ),
        case when is_too_late then null else standing end as standing,
        case when is_too_late then null else attempt end as attempt,
        case when is_too_late then 0 else publish_attempt end as publish_attempt,
        case when is_too_late then 'duplicate' else decision end as decision,
        case
            when is_too_late and standing = 'answer' then 'answered_already'
            when is_too_late then 'known_already'
            else reason
        end as reason,
        case when is_too_late then null else objection end as objection,
        case when is_too_late then null else destination end as destination,
        is_sent_anew and not is_too_late as is_sent_anew,
        keeps_its_error and not is_too_late as keeps_its_error,
        not is_too_late and decision in ('retry', 'redrive') as is_another_try
    from ordered

),

made as (

    select
        ---------- which
        cause,
        -- a delivery is named after what caused it; what answers a failed send, after the delivery that failed
        case when input_kind = 'failed_send' then answered.delivery_id else cause end as named_after,
        batch,
        recorded_at,
        source,
        dialect,
        message_id,
        life,
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
        case when objection is not null then 'refused' else decision end as decision,
        coalesce(objection, reason) as reason,
        case
            when objection is not null then null
            when decision in ('dead_letter', 'orphan') then 'dead_letter'
            when is_another_try then decision
        end as kind,
        case when objection is null then destination end as topic,
        original_partition as partition,
        case
            when objection is null and is_another_try then retry_at
            when objection is null and reason = 'dead_letter_failed' then recorded_at + make_dt_interval(0, 0, 0, delay_ms / 1000.0)
            else recorded_at
        end as due_at,
        case when objection is null and is_another_try then {{ gate_scope('gate', 'consumer_group', 'original_topic', 'original_partition') }} end as gate,
        case when objection is null and is_another_try then publish_charge end as publish_charge,
        case when objection is null and (decision = 'retry' or reason = 'dead_letter_failed') then delay_ms end as delay_ms,

        ---------- what may be said of it, and kept: what is sent anew is the same as before
        case
            when objection is not null or decision not in ('dead_letter', 'orphan') then null
            when reason = 'dead_letter_failed' then coalesce(answered.header_profile, 'dlq')
            else coalesce(header_profile, 'dlq')
        end as header_profile,
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
        case when is_sent_anew then answered.error_stack end as prior_stack,
        case when keeps_its_error then answered.error_kind else error_kind end as error_kind,
        case when keeps_its_error then answered.rule else rule end as rule,
        case when keeps_its_error then answered.matched else matched end as matched,
        passed_over,
        problems,
        policy.policy,
        policy.definition as policy_text,
        rules_hash,
        content_hash
    from settled

)

select * from made
