-- decisions_once: each row of `deliveries` once, and of what it sends as much as its privacy shows. A fold that is repeated after a crash, or
-- runs beside another, adds copies.

with

deliveries as (

    select * from {{ ref('deliveries') }}

),

first_folds as (

    {{ first_folds('deliveries') }}

),

decisions_once as (

    select
        deliveries.* except (key, value, headers),
        case when {{ privacy_keeps('payload', 'deliveries.privacy') }} then deliveries.key end as key,
        case when {{ privacy_keeps('payload', 'deliveries.privacy') }} then deliveries.value end as value,
        filter(deliveries.headers, h -> not {{ is_denied_header('h.key', 'deliveries.privacy') }}) as headers
    from deliveries
    left semi join first_folds
        on
            deliveries.batch = first_folds.batch
            and deliveries.due_hour = first_folds.due_hour
            and deliveries.fold = first_folds.fold

)

select * from decisions_once
