-- privacy_read: each row of the seed `privacy`, with its denied headers as an array, and the privacy `everything`, which the seed doesn't have.
with

privacy as (

    select * from {{ ref('privacy') }}

),

read as (

    select
        name,
        stack,
        message,
        payload,
        transform(
            filter(split(trim(coalesce(headers, '')), ' +'), p -> p <> ''),
            p -> {{ regular_expression('p') }}
        ) as denied_headers
    from privacy

    union all

    select
        '{{ var('unrestricted_privacy') }}' as name,
        'keep' as stack,
        'keep' as message,
        'keep' as payload,
        cast(array() as array<string>) as denied_headers

)

select * from read
