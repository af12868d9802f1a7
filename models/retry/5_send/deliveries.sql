-- deliveries: every decision, with its reason; the wheel that the publisher reads. One input, one decision, or the statement stops.
{{ config(
    materialized='append_only',
    refuse_creation='refuse_to_replace_the_wheel',
    guard='fold_guard',
    partition_by=['hours(due_at)'],
    tblproperties=ledger_properties(distribution='none'),
    stages=['answers_found', 'messages_identified', 'errors_classified', 'decisions_made'],
    post_hook=interpreted(false),
) }}

{#- what is sent, or was adopted or parked, and what was refused and may be decided anew: these have a name, and keep what they are about -#}
{%- set is_refused_for_now = "(decisions.decision = 'refused' and decisions.reason in " ~ reasons_where(redrivable='yes') ~ " and inputs.is_report and decisions.cause not like 'loop/%')" %}
{%- set has_a_name = "(decisions.kind is not null or decisions.decision in ('adopted', 'parked') or " ~ is_refused_for_now ~ ")" %}
{#- a dead letter that could not be sent is followed by others without end: the payload stays with the first, and these name it -#}
{%- set is_written_again = "coalesce(decisions.reason = 'dead_letter_failed' and decisions.kind is not null, false)" %}
{%- set keeps_payload = "not " ~ is_written_again ~ " and coalesce(decisions.kind in ('retry', 'redrive') or (" ~ has_a_name ~ " and not coalesce(decisions.privacy.payload = 'drop', false)), false)" %}

{% if execute and load_relation(this) is none %}

{{ typed_empty() }}

{% elif execute and fold_bounds().inputs == 0 %}

-- nothing to append
{{ typed_empty() }}

{% else %}

with

decisions as (

    select
        *,
        count(*) over (partition by cause) as decisions_of_this_input
    from {{ ref('decisions_made') }}

),

events as (

    select
        {{ event_cause('events') }} as cause,
        key,
        value,
        headers,
        {{ utf8_text(header_bytes('headers', 'redrive-header-profile')) }} as earlier_profile,
        cast(null as string) as payload_delivery,
        cast(null as timestamp) as payload_due,
        cast(null as bigint) as payload_bytes,
        true as is_report
    from {{ ref('events') }} as events
    where {{ in_this_fold('batch') }} and (kind = 'report' or delivery_id is null)

),

about_deliveries as (

    -- what comes from ourselves carries no payload: that of the delivery it is about
    select
        {{ result_cause('publish_results') }} as cause,
        delivery_id,
        due_at
    from {{ ref('publish_results') }} as publish_results
    where outcome = 'failed' and {{ in_this_fold('batch') }}

    union all

    select
        {{ event_cause('events') }} as cause,
        delivery_id,
        due_at
    from {{ ref('events') }} as events
    where kind <> 'report' and delivery_id is not null and {{ in_this_fold('batch') }}

),

first_letters as (

    -- a dead letter that was refused and sent again keeps no payload: that of the first is needed once it is redriven
    select
        delivery_id,
        due_at,
        key,
        value,
        headers
    from {{ wheel() }} as deliveries
    where {{ dues_in_bounds('due_at', payload_bounds()) }}

),

sent_before as (

    select
        about_deliveries.cause,
        coalesce(deliveries.key, first_letters.key) as key,
        coalesce(deliveries.value, first_letters.value) as value,
        coalesce(deliveries.headers, first_letters.headers) as headers,
        cast(null as string) as earlier_profile,
        deliveries.payload_delivery,
        deliveries.payload_due,
        deliveries.payload_bytes,
        false as is_report
    from about_deliveries
    left join {{ wheel() }} as deliveries
        on
            about_deliveries.delivery_id = deliveries.delivery_id
            and about_deliveries.due_at = deliveries.due_at
            and {{ dues_in_bounds('deliveries.due_at') }}
    left join first_letters
        on
            deliveries.payload_delivery = first_letters.delivery_id
            and deliveries.payload_due = first_letters.due_at

),

inputs as (

    select {{ in_few_partitions() }} * from (
        select * from events
        union all
        select distinct * from sent_before
    ) as gathered

),

decided as (

    select
        ---------- which: an input without a decision, or with two, stops everything, before anything is written
        {{ stop_unless(
            'decisions.decisions_of_this_input = 1',
            'inputs.cause',
            "concat('the fold made ', coalesce(decisions.decisions_of_this_input, 0), ' decisions for input ', inputs.cause, ', not one: nothing was written. This is a bug in a rule; reports are kept and wait.')",
        ) }} as cause,
        decisions.batch,
        xxhash64('{{ invocation_id }}') as fold,
        decisions.recorded_at,
        decisions.source,
        decisions.message_id,
        decisions.life,
        decisions.attempt,
        decisions.publish_attempt,
        decisions.max_attempts,
        decisions.original_topic,
        decisions.original_partition,
        decisions.original_offset,
        decisions.original_timestamp,
        decisions.consumer_group,
        decisions.report_topic,
        decisions.report_partition,
        decisions.report_offset,

        ---------- what is decided
        {{ stop_unless(
            'decisions.decision is not null',
            'decisions.decision',
            "concat('no rule decides about input ', inputs.cause, ' (', coalesce(decisions.reason, 'no reason'), '): nothing was written. This is a bug in a rule; reports are kept and wait.')",
        ) }} as decision,
        decisions.reason,
        decisions.kind,
        case
            when {{ has_a_name }}
                then concat(decisions.message_id, '#', {{ short_hash('decisions.named_after') }})
        end as delivery_id,
        decisions.due_at,
        date_trunc('hour', decisions.due_at) as due_hour,
        decisions.topic,
        decisions.partition,
        decisions.gate,
        decisions.publish_charge,
        decisions.delay_ms,
        decisions.header_profile,
        decisions.privacy,

        ---------- what it answers
        decisions.prior_delivery,
        decisions.prior_due,

        ---------- why it failed, and when
        decisions.failed_at,
        decisions.happened_at,
        decisions.first_failed_at,
        decisions.error_class,
        case when {{ privacy_keeps('message', 'decisions.privacy') }} then decisions.error_message end as error_message,
        -- of a report whose message is dead: until then it stays in `events` alone
        case
            when {{ is_written_again }} or not {{ privacy_keeps('stack', 'decisions.privacy') }} then null
            when decisions.prior_stack is not null then decisions.prior_stack
            when {{ is_dead_letter('decisions') }} and inputs.is_report
                then {{ stack_text(dialect_field('error_stack', 'inputs.headers')) }}
        end as error_stack,
        decisions.error_kind,
        decisions.rule,
        -- it quotes messages and headers
        case
            when {{ privacy_keeps('message', 'decisions.privacy') }} and coalesce(size(decisions.privacy.denied_headers), 0) <= 0
                then decisions.matched
        end as matched,
        decisions.passed_over,
        decisions.problems,
        decisions.policy,
        decisions.policy_text,
        {% if var('rules_hash') is none -%}
        decisions.rules_hash,
        {%- else -%}
        {{ stop_unless(
            "decisions.rules_hash = '" ~ var('rules_hash') ~ "'",
            'decisions.rules_hash',
            "'the rules changed since the loop loaded them (has a dbt build?): nothing was written, the fold is tried again'",
        ) }} as rules_hash,
        {%- endif %}

        ---------- what is sent, or may be: only where something is; a retry always as it came
        decisions.content_hash,
        case when {{ keeps_payload }} then inputs.key end as key,
        case when {{ keeps_payload }} then inputs.value end as value,
        case
            when {{ has_a_name }} and not {{ is_written_again }} then filter(
                coalesce(decisions.prior_headers, if(inputs.is_report, filter(inputs.headers, h -> not (
                    {{ dialect_owns('decisions.dialect', 'h.key') }}
                    or {{ is_dead_letter_header('inputs.earlier_profile', 'h.key') }}
                )), inputs.headers)),
                h -> not (
                    {{ is_dead_letter('decisions') }}
                    and (
                        {{ is_dead_letter_header('decisions.header_profile', 'h.key') }}
                        or {{ is_denied_header('h.key', 'decisions.privacy') }}
                    )
                )
            )
        end as headers,
        case
            when {{ is_written_again }} and inputs.payload_due is not null then inputs.payload_bytes
            when {{ has_a_name }}
                then
                    coalesce(length(inputs.key), 0)
                    + coalesce(length(inputs.value), 0)
                    + coalesce(aggregate(inputs.headers, 0, (sum, h) -> sum + length(h.key) + coalesce(length(h.value), 0)), 0)
        end as payload_bytes,
        case when {{ is_written_again }} then coalesce(inputs.payload_delivery, decisions.prior_delivery) end as payload_delivery,
        case when {{ is_written_again }} then coalesce(inputs.payload_due, decisions.prior_due) end as payload_due
    from inputs
    left join decisions on inputs.cause = decisions.cause

)

select * from decided
-- so that file statistics prune look-ups by coordinates; within each partition, as a total order makes Spark fold twice, once to sample
sort by original_topic, original_partition, original_offset

{% endif %}
