-- payloads_kept: the decisions, each with the payload that is sent, or kept so that it can be sent later.
with

decisions as (

    select
        *,
        count(*) over (partition by input_id) as decisions_of_this_input
    from {{ ref('decisions_made') }}

),

inputs as (

    select * from {{ ref('payloads_gathered') }}

),

rules as (

    select * from {{ ref('rules') }}

),

joined as (

    -- inputs on the left side: an input without a decision must reach `deliveries`, which then stops the decide step
    select
        decisions.* except (input_id),
        inputs.input_id,
        rules.dialects[decisions.dialect] as says,
        inputs.key as input_key,
        inputs.value as input_value,
        if(inputs.is_report, {{ with_headers_restored('rules.dialects[decisions.dialect]', 'inputs.headers') }}, inputs.headers) as input_headers,
        {{ refers_to_original('decisions', 'inputs', 'rules') }} as refers_to_original,
        inputs.error_stack as input_stack,
        inputs.earlier_profile,
        inputs.payload_delivery as earlier_delivery,
        inputs.payload_due as earlier_due,
        inputs.payload_bytes as earlier_bytes,
        inputs.is_report,
        {{ is_dead_letter('decisions') }} as is_dead_letter,
        -- a dead letter that Kafka refuses is written again without end: only the first row keeps the payload, and the others name that row
        coalesce(decisions.reason = 'dead_letter_failed' and decisions.kind is not null, false) as is_written_again,
        -- these get a delivery id: what is sent, adopted or parked, followers, and refused reports that may be decided anew
        decisions.kind is not null
        or decisions.decision in ('adopted', 'parked', 'follows')
        or (
            decisions.decision = 'refused' and decisions.reason in {{ reasons_where(redrivable='yes') }}
            and inputs.is_report and decisions.input_id not like 'loop/%'
        ) as has_a_name
    from inputs
    left join decisions on inputs.input_id = decisions.input_id
    cross join rules

),

judged as (

    select
        * except (sequence),
        coalesce(
            sequence,
            case when is_report then {{ sequence_id('sequence_by', 'input_key', 'input_value', 'input_headers', 'is_sequence_hidden') }} end,
            -- without an id, it waits for nothing, and is found all the same
            case when decision = 'follows' then message_id end
        ) as sequence,
        not is_written_again and coalesce(
            kind in ('retry', 'redrive', 'publish') or decision = 'follows' or (has_a_name and not coalesce(privacy.payload = 'drop', false)),
            false
        ) as keeps_payload
    from joined

),

kept as (

    select
        * except (says, input_key, input_value, input_headers, input_stack, earlier_profile, earlier_delivery, earlier_due, earlier_bytes, error_message, matched, sequence_epoch),
        case when sequence is not null then sequence_epoch end as sequence_epoch,
        case when {{ privacy_keeps('message', 'privacy') }} then error_message end as error_message,
        -- `matched` quotes the message and headers
        case when {{ privacy_keeps('message', 'privacy') }} and coalesce(size(privacy.denied_headers), 0) <= 0 then matched end as matched,
        -- the stack trace is kept with dead letters only: that of a failure which is retried stays in `events`
        case
            when is_written_again or not {{ privacy_keeps('stack', 'privacy') }} then null
            when is_sent_anew and input_stack is not null then input_stack
            when is_dead_letter and is_report then {{ stack_text(dialect_field('error_stack', 'says', 'input_headers') ~ '.bytes') }}
        end as error_stack,
        case when keeps_payload and not refers_to_original then input_key end as key,
        case when keeps_payload and not refers_to_original then input_value end as value,
        keeps_payload and refers_to_original as by_reference,
        case
            when has_a_name and not is_written_again then filter(
                coalesce(prior_headers, if(is_report, filter(input_headers, h -> not (
                    {{ dialect_owns('says', 'h.key') }}
                    or {{ is_dead_letter_header('earlier_profile', 'h.key') }}
                )), input_headers)),
                h -> not (
                    is_dead_letter
                    and ({{ is_dead_letter_header('header_profile', 'h.key') }} or {{ is_denied_header('h.key', 'privacy') }})
                )
            )
        end as headers,
        case
            when is_written_again and earlier_due is not null then earlier_bytes
            when has_a_name
                then
                    coalesce(length(input_key), 0)
                    + coalesce(length(input_value), 0)
                    + coalesce(aggregate(input_headers, 0, (sum, h) -> sum + length(h.key) + coalesce(length(h.value), 0)), 0)
        end as payload_bytes,
        case when is_written_again then coalesce(earlier_delivery, prior_delivery) end as payload_delivery,
        case when is_written_again then coalesce(earlier_due, prior_due) end as payload_due
    from judged

)

select * from kept
