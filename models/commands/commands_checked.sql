-- commands_checked: every command, with the length of its list, and the first problem that it has, if any.
{{ config(materialized='ephemeral') }}

with

records as (

    select * from {{ ref('command_records') }}

),

parts as (

    select * from {{ ref('command_parts') }}

),

closings as (

    select
        *,
        row_number() over (partition by command order by batch, partition, offset) as turn
    from records
    where is_closing and command is not null

),

commands as (

    select
        command,
        min(batch) as first_batch,
        min(recorded_at) as recorded_at
    from records
    where command is not null
    group by command

),

lists as (

    select
        command,
        count(*) as parts,
        count(distinct part) as different_parts,
        max(part) as last_part,
        sum(size(deliveries)) as listed,
        every(is_readable and is_list_readable) as is_readable,
        sha2(array_join(transform(array_sort(collect_list(struct(part, digest))), p -> p.digest), '\n'), 256) as digest
    from parts
    group by command

)

select
    commands.command,
    commands.first_batch,
    commands.recorded_at,
    closings.command is not null as is_closed,
    closings.batch as closed_batch,
    closings.partition,
    closings.offset,
    closings.what,
    closings.who,
    closings.reason,
    closings.ticket,
    closings.rate,
    closings.start_at,
    closings.canary,
    closings.assume_after_ms,
    closings.to_stated,
    closings.of_command,
    coalesce(lists.listed, 0) as listed,
    case
        when closings.command is null then 'no record closes it'
        when not closings.is_readable then 'the closing record cannot be read'
        when not coalesce(lists.is_readable, true) then 'a part of the list cannot be read'
        when closings.what is null or closings.what not in {{ command_kinds() }} then 'what it asks for is missing or unknown'
        when coalesce(closings.reason, '') = '' then 'it gives no reason'
        when coalesce(closings.who, '') = '' then 'it does not say who'
        when closings.what in {{ command_kinds('about_commands') }} and closings.of_command is null
            then 'it does not say which command it is about'
        when closings.count is null then 'the number of messages is missing or above 1,000,000'
        when closings.count <> coalesce(lists.listed, 0) or lists.parts <> lists.different_parts or lists.last_part <> lists.parts - 1
            then 'the list is incomplete, or a part came twice'
        when closings.what not in {{ command_kinds('about_commands') }} and closings.count = 0 then 'the list is empty'
        when closings.count > 0 and not coalesce(closings.digest_of_all = lists.digest, false) then 'the list does not match the digest in the closing record'
        when closings.rate_stated is not null and closings.rate is null then 'the rate is 0 or cannot be read'
        when closings.at_stated is not null and closings.start_at is null then 'the time of the start cannot be read'
        when closings.canary_stated is not null and closings.canary is null then 'the number of canaries is 0 or cannot be read'
        when closings.assume_after_stated is not null and closings.assume_after_ms is null then 'how long to wait for canaries cannot be read'
        when closings.to_stated is not null and closings.destination is null then 'the destination is not a legal topic name'
    end as problem
from commands
left join closings
    on
        commands.command = closings.command
        and closings.turn = 1
left join lists on commands.command = lists.command
