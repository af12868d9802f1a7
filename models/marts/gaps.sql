-- gaps: ranges of offsets of report topics that are missing: retention removed them before they were read, or the partition was cut short. Unread
-- reports among them are lost, and it is unknown which messages they were about.
with

events as (

    -- the loop writes `topic/partition first-last` into detail
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
