-- rows_decided: the decision about each row of an outbox: it is published at once. A row that is pending again begins another life cycle of its message,
-- unless that is open. Nothing has failed yet, so no rule for errors applies; what Kafka refuses later is decided like any failure.
-- Longer than other models, as it names each column of a decision.
{{ config(materialized='ephemeral') }}

with

taken as (

    select
        *,
        {{ event_input_id('events') }} as input_id,
        concat('outbox:', source, '/', detail) as message_id
    from {{ ref('events') }} as events
    where {{ slot('are_rows', 'false') }} and kind = 'row' and {{ in_this_run('batch') }}

),

rules as (

    select
        rules_hash,
        routes,
        transform(sources, s -> s.topic) as source_topics
    from {{ ref('rules') }}

),

earlier as (

    select * from {{ wheel() }} as deliveries
    where
        outbox_row is not null and (decision in {{ decisions_where(succeeds='yes') }} or decision = 'refused')
        and {{ slot('rows_before', 'false') }}

),

delivered as (

    select
        delivery_id,
        due_at
    from {{ ref('publish_results') }}
    where kind = 'publish' and outcome = 'delivered' and {{ slot('are_rows', 'false') }} and due_at >= timestamp_micros({{ slot('rows_from') }})

),

last_ones as (

    select
        message_id,
        max(life_cycle) filter (where decision <> 'refused') as life_cycle,
        max_by(struct(kind, delivery_id, due_at), struct(life_cycle, batch)) filter (where decision <> 'refused') as last,
        -- sends that have failed, and no rule had a place for: these are open no more
        collect_set(prior_delivery) filter (where startswith(input_id, concat(prior_delivery, '@'))) as refused_sends
    from earlier
    group by message_id

),

known as (

    select
        last_ones.message_id,
        last_ones.life_cycle,
        last_ones.last.kind <=> 'publish' and delivered.delivery_id is null
        and not coalesce(array_contains(last_ones.refused_sends, last_ones.last.delivery_id), false) as is_open
    from last_ones
    left join delivered
        on
            last_ones.last.delivery_id = delivered.delivery_id
            and last_ones.last.due_at = delivered.due_at

),

judged as (

    select
        taken.*,
        rules.rules_hash,
        {{ route_for_kind(routes_of('rules.routes', 'taken.topic', 'null'), 'null') }}.privacy as privacy,
        coalesce(known.life_cycle, 0) as life_cycles,
        coalesce(known.is_open, false)
        or row_number() over (partition by taken.message_id order by taken.batch, taken.index) > 1 as is_known_already,
        {{ destination_objection('taken.topic', 'false', 'rules.source_topics') }} as objection
    from taken
    cross join rules
    left join known on taken.message_id = known.message_id

),

decided as (

    select
        *,
        case
            when is_known_already then 'duplicate'
            when objection is not null then 'refused'
            else 'publish'
        end as decision
    from judged

)

select
    ---------- which
    1 as decisions_of_this_input,
    input_id,
    input_id as named_after,
    decision = 'publish' as has_a_name,
    batch,
    recorded_at,
    source,
    message_id,
    case when is_known_already then life_cycles else life_cycles + 1 end as life_cycle,
    case when decision = 'publish' then coalesce(attempts, 0) end as attempt,
    0 as publish_attempt,
    cast(null as int) as max_attempts,
    topic as original_topic,
    cast(null as int) as original_partition,
    cast(null as bigint) as original_offset,
    record_timestamp as original_timestamp,
    cast(null as string) as consumer_group,
    cast(null as string) as report_topic,
    cast(null as int) as report_partition,
    cast(null as bigint) as report_offset,

    ---------- what is decided
    decision,
    case decision when 'duplicate' then 'known_already' when 'refused' then objection else 'new_row' end as reason,
    case when decision = 'publish' then 'publish' end as kind,
    case when decision = 'publish' then {{ whole_ms('greatest(recorded_at, due_at)') }} else recorded_at end as due_at,
    case when decision = 'publish' then topic end as topic,
    cast(null as int) as partition,
    cast(null as string) as breaker_key,
    'all' as publish_charge,
    cast(null as bigint) as delay_ms,
    cast(null as string) as header_profile,
    -- that of the route for all kinds of errors
    privacy,

    ---------- what it answers
    cast(null as string) as prior_delivery,
    cast(null as timestamp) as prior_due,

    ---------- nothing has failed
    cast(null as timestamp) as failed_at,
    cast(null as timestamp) as happened_at,
    cast(null as timestamp) as first_failed_at,
    cast(null as string) as error_class,
    cast(null as string) as error_message,
    cast(null as string) as error_stack,
    cast(null as string) as error_kind,
    cast(null as string) as rule,
    cast(null as string) as matched,
    cast(null as array<string>) as passed_over,
    cast(null as array<string>) as problems,
    cast(null as string) as policy,
    cast(null as string) as policy_text,
    rules_hash,

    ---------- the payload
    case when decision = 'publish' then {{ content_hash('key', 'value') }} end as content_hash,
    case when decision = 'publish' then key end as key,
    case when decision = 'publish' then value end as value,
    case when decision = 'publish' then headers end as headers,
    false as by_reference,
    case
        when decision = 'publish'
            then
                coalesce(length(key), 0)
                + coalesce(length(value), 0)
                + coalesce(aggregate(headers, 0, (sum, h) -> sum + length(h.key) + coalesce(length(h.value), 0)), 0)
    end as payload_bytes,

    ---------- its place among the rows of its aggregate: batches in their order, and in each, the index; a batch has fewer rows than 2^24
    detail as outbox_row,
    case when decision = 'publish' then sequence end as sequence,
    case when decision = 'publish' and sequence is not null then shiftleft(batch, 24) + index end as sequence_place,
    cast(null as string) as sequence_epoch,
    cast(null as string) as payload_delivery,
    cast(null as timestamp) as payload_due
from decided
