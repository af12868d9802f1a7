-- ready: what may be sent. The only thing between dbt and the publisher: its columns are a contract.
-- It knows no clock: the reader restricts due_at to [floor, now] and not_before to now, as literals, so that only due slots are read.
{{ config(materialized='view', contract={'enforced': true}) }}

with

deliveries as (

    select * from {{ ref('deliveries') }}
    where kind is not null

),

results as (

    select
        delivery_id,
        due_at,
        max(outcome in {{ closing_outcomes() }}) as is_closed,
        max(not_before) as not_before
    from {{ ref('publish_results') }}
    group by delivery_id, due_at

),

successors as (

    select
        prior_delivery,
        prior_due
    from {{ ref('deliveries') }}
    where prior_delivery is not null and decision in {{ succeeding_decisions() }}

),

waiting as (

    select
        deliveries.*,
        results.not_before,
        row_number() over (partition by deliveries.due_at, deliveries.delivery_id order by deliveries.batch) as copy
    from deliveries
    left join results
        on
            deliveries.delivery_id = results.delivery_id
            and deliveries.due_at = results.due_at
    left anti join successors
        on
            deliveries.delivery_id = successors.prior_delivery
            and deliveries.due_at = successors.prior_due
    where not coalesce(results.is_closed, false)

),

ready as (

    select
        ---------- which
        delivery_id,
        due_at,
        kind,
        message_id,

        ---------- where it goes
        topic,
        partition,
        concat(original_topic, '/', original_partition) as order_key,

        ---------- what goes
        key,
        value,
        {{ sent_headers() }} as headers,
        payload_bytes,

        ---------- where the message came from
        original_topic,
        original_partition,
        original_offset,

        ---------- when, if not at once
        not_before
    from waiting
    where copy = 1

)

select * from ready
