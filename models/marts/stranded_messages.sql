-- stranded_messages: messages that ever died, and messages that are refused now: why, where they lie, and what has been done about them since.
with

stranded as (

    select * from {{ ref('stranded_states') }}

),

routes as (

    select * from {{ ref('routes_described') }}

),

read as (

    select
        *,
        {{ error_pattern('error_class', 'error_message', 'error_stack') }} as error_pattern,
        {{ schema_id('value') }} as schema_id,
        case when {{ schema_id('value') }} is not null then substring(value, 6) else value end as body
    from stranded

),

routed as (

    select
        read.*,
        {{ payload_type('read.value', 'read.schema_id', 'read.body') }} as payload_type,
        filter(
            routes.routes,
            r -> {{ topic_matches('read.original_topic', 'r.topic') }}
                and (r.consumer_group = '*' or r.consumer_group <=> read.consumer_group)
                and (r.error_kind = '*' or r.error_kind <=> read.error_kind)
        ) as routes
    from read
    cross join routes

),

identified as (

    select
        *,
        {{ identifier(route_says('routes', 'request_id'), 'headers', 'value') }} as request_id,
        {{ identifier(route_says('routes', 'process_id'), 'headers', 'value') }} as process_id,
        {{ trace_id(identifier("coalesce(" ~ route_says('routes', 'trace_id') ~ ", 'traceparent')", 'headers', 'value')) }} as trace_id
    from routed

)

select
    ---------- which
    message_id,
    state,
    life_cycle,
    life_cycles,
    recovered_at,

    ---------- what operators said about it
    note,
    ticket,
    purged_at,
    dead_at + make_dt_interval(0, 0, 0, {{ duration_ms(route_says('routes', 'purge_after')) }} / 1000.0) as purge_due,

    ---------- where it lies
    topic,
    partition,
    offset,
    dead_at,
    omitted,

    ---------- why
    decision,
    reason,
    error_class,
    error_kind,
    error_message,
    error_stack,
    error_pattern,
    {{ fingerprint('error_class', 'error_pattern') }} as fingerprint,
    rule,
    matched,
    attempt as attempts,
    first_failed_at,
    failed_at,

    ---------- where it came from
    consumer_group,
    original_topic,
    original_partition,
    original_offset,
    original_timestamp,
    source,
    delivery_id,
    due_at,

    ---------- ids to look it up by, whom to ask, and links
    request_id,
    process_id,
    trace_id,
    {{ route_says('routes', 'owner') }} as owner,
    {{ route_says('routes', 'runbook') }} as runbook,
    {{ link(route_says('routes', 'logs_url'), link_placeholders()) }} as logs_url,
    {{ link(route_says('routes', 'trace_url'), link_placeholders()) }} as trace_url,

    ---------- what it is
    payload_type,
    schema_id,
    length(value) as value_bytes,
    {{ excerpt('payload_type', 'body') }} as excerpt,
    key,
    value,
    headers,
    by_reference,
    {{ headers_by_name('headers') }} as headers_by_name
from identified
