-- gaps: what is away of report topics: removed by retention before it was read, or cut off. Reports that lay there unread are lost, and nobody can say whose.
with

events as (

    -- detail is the loop's own text: `topic/partition first-last`
    select * from {{ ref('events') }}
    where kind = 'gap'

),

ranges as (

    select
        *,
        regexp_extract(detail, '/([0-9]+) [0-9]+-[0-9]+$', 1) as partition_text,
        regexp_extract(detail, ' ([0-9]+)-[0-9]+$', 1) as first_text,
        regexp_extract(detail, ' [0-9]+-([0-9]+)$', 1) as last_text
    from events

),

gaps as (

    select
        ---------- where
        source,
        topic,
        try_cast(partition_text as int) as partition,

        ---------- what is missing
        try_cast(first_text as bigint) as first_offset,
        try_cast(last_text as bigint) as last_offset,
        try_cast(last_text as bigint) - try_cast(first_text as bigint) + 1 as rows_missing,

        ---------- when it was noticed
        recorded_at,
        batch
    from ranges

)

select * from gaps
