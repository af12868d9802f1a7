-- stranded_messages: what goes nowhere by itself any more: what died, and what was refused; why, where it lies, and what was done about it.
with

deaths as (

    select * from {{ ref('deaths') }}

),

copies as (

    select * from {{ ref('copies') }}

),

later_decisions as (

    select * from {{ ref('later_decisions') }}

),

refusals as (

    select * from {{ ref('refusals') }}

),

last_words as (

    select * from {{ ref('last_words') }}

),

purges as (

    select * from {{ ref('purges') }}

),

recoveries as (

    select * from {{ ref('recoveries') }}

),

routes as (

    select * from {{ ref('routes_described') }}

),

dead as (

    select
        deaths.* except (topic, partition),
        copies.topic,
        copies.partition,
        copies.offset,
        copies.sent_at,
        copies.omitted,
        greatest(deaths.life, later_decisions.lives) as lives,
        case
            when later_decisions.last_word.prior_delivery = deaths.delivery_id
                and later_decisions.last_word.decision = 'discarded'
                and later_decisions.last_word.batch > coalesce(later_decisions.tried_batch, -1)
                then 'discarded'
            when later_decisions.tried_batch > deaths.batch and recoveries.delivery_id is not null then 'recovered'
            when later_decisions.tried_batch > deaths.batch then 'redriven'
            else 'open'
        end as state,
        case when later_decisions.tried_batch > deaths.batch then recoveries.recovered_at end as recovered_at
    from deaths
    inner join copies
        on
            deaths.message_id = copies.message_id
            and deaths.delivery_id = copies.delivery_id
            and deaths.due_at = copies.due_at
    left join later_decisions on deaths.message_id = later_decisions.message_id
    left join recoveries
        on
            later_decisions.last_try.delivery_id = recoveries.delivery_id
            and later_decisions.last_try.due_at = recoveries.due_at

),

refused as (

    select
        refusals.* except (topic, partition),
        cast(null as string) as topic,
        cast(null as int) as partition,
        cast(null as bigint) as offset,
        refusals.recorded_at as sent_at,
        cast(null as string) as omitted,
        greatest(refusals.life, later_decisions.lives) as lives,
        case
            when later_decisions.last_word.prior_delivery = refusals.delivery_id and later_decisions.last_word.decision = 'discarded'
                then 'discarded'
            else 'refused'
        end as state,
        cast(null as timestamp) as recovered_at
    from refusals
    left join later_decisions on refusals.message_id = later_decisions.message_id

),

stranded as (

    -- decisions both, with the same columns after theirs
    select * from dead
    union all
    select * from refused

),

commented as (

    select
        stranded.*,
        last_words.note,
        last_words.ticket,
        case when stranded.life <= purges.life then purges.purged_at end as purged_at
    from stranded
    left join last_words on stranded.message_id = last_words.message_id
    left join purges on stranded.message_id = purges.message_id

),

read as (

    select
        *,
        {{ error_pattern('error_class', 'error_message', 'error_stack') }} as error_pattern,
        {{ schema_id('value') }} as schema_id,
        case when {{ schema_id('value') }} is not null then substring(value, 6) else value end as body
    from commented

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

),

stranded_messages as (

    select
        ---------- which
        message_id,
        state,
        life,
        lives,
        recovered_at,

        ---------- what was said about it
        note,
        ticket,
        purged_at,

        ---------- where it lies
        topic,
        partition,
        offset,
        sent_at as dead_at,
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

        ---------- whom it concerns, and where to look
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
        {{ headers_by_name('headers') }} as headers_by_name
    from identified

)

select * from stranded_messages
