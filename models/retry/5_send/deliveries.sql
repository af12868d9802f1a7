-- deliveries: every decision, with its reason (the wheel). The view `ready` shows what may be sent. If an input doesn't have exactly one decision,
-- nothing is written.
{{ config(
    materialized='append_only',
    refuse_creation='refuse_to_replace_the_wheel',
    slots='read_slots',
    guard='batch > ' ~ slot('watermark'),
    partition_by=['hours(due_at)'],
    tblproperties=ledger_properties(distribution='none'),
    stages=[
        'inputs_gathered', 'answers_found', 'standings_found', 'messages_known', 'messages_identified', 'rules_found', 'delays_computed',
        'reasons_given', 'decisions_made',
    ],
    empty_if={'payloads_kept': 'are_only_rows'},
) }}
-- the queries of decide_bounds read these tables: without this line, dbt doesn't know it
-- depends_on: {{ ref('events') }}, {{ ref('publish_results') }}, {{ ref('ticks') }}, {{ ref('stg_inputs') }}

with

decisions as (

    select * from {{ ref('decisions_gathered') }}

)

select
    ---------- which: an input without a decision, or with two, stops the statement before anything is written
    {{ stop_unless(
        'decisions_of_this_input = 1',
        'input_id',
        "concat('the decide step made ', coalesce(decisions_of_this_input, 0), ' decisions for input ', input_id, ', not one: nothing was written. This is a bug in the models of redrive; reports are kept and wait.')",
    ) }} as input_id,
    batch,
    {{ slot('decide_run') }} as decide_run,
    recorded_at,
    source,
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
    {{ stop_unless(
        'decision is not null',
        'decision',
        "concat('no decision was made about input ', input_id, ' (', coalesce(reason, 'no reason'), '): nothing was written. This is a bug in the models of redrive; reports are kept and wait.')",
    ) }} as decision,
    reason,
    kind,
    case when has_a_name then concat(message_id, '#', {{ short_hash('named_after') }}) end as delivery_id,
    due_at,
    date_trunc('hour', due_at) as due_hour,
    topic,
    partition,
    breaker_key,
    publish_charge,
    delay_ms,
    header_profile,
    privacy,

    ---------- what it answers
    prior_delivery,
    prior_due,

    ---------- why it failed, and when
    failed_at,
    happened_at,
    first_failed_at,
    error_class,
    error_message,
    error_stack,
    error_kind,
    rule,
    matched,
    passed_over,
    problems,
    policy,
    policy_text,
    {{ stop_unless(
        slot('given_rules_hash', 'null') ~ ' is null or coalesce(rules_hash = ' ~ slot('given_rules_hash', 'null') ~ ', false)',
        'rules_hash',
        "'the rules changed since the loop loaded them (did a dbt build load others?): nothing was written; the decide step is tried again'",
    ) }} as rules_hash,

    ---------- the payload: only where something is sent, or may be later. A retry carries the message as it came, whatever its privacy
    content_hash,
    key,
    value,
    headers,
    by_reference,
    payload_bytes,
    outbox_row,
    sequence,
    sequence_place,
    sequence_epoch,
    payload_delivery,
    payload_due
from decisions
-- sorted, so that look-ups by coordinates skip files by their statistics. Not `order by`: for a total order Spark computes everything twice, first
-- for a sample
sort by original_topic, original_partition, original_offset, outbox_row
