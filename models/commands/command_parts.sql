-- command_parts: the parts of each command's list: the records before the closing one, in its partition. Later parts don't count.
{{ config(materialized='ephemeral') }}

with

records as (

    select * from {{ ref('command_records') }}
    where command is not null

),

numbered as (

    select
        *,
        row_number() over (partition by command, is_closing order by batch, partition, offset) as turn
    from records

),

closings as (

    select * from numbered
    where is_closing and turn = 1

),

parts as (

    select
        records.*,
        sum(size(records.deliveries)) over (
            partition by records.command order by records.part, records.offset
            rows between unbounded preceding and 1 preceding
        ) as listed_before
    from records
    left join closings on records.command = closings.command
    where
        not records.is_closing
        and (
            closings.command is null
            or (records.topic_id = closings.topic_id and records.partition = closings.partition and records.offset < closings.offset)
        )

)

select * from parts
