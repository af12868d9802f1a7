-- redrives: every complete command about messages, except notes: how far it is carried out, and what came of it.
with

commands as (

    select * from {{ ref('operator_commands') }}
    where status = 'complete'

),

messages as (

    select * from {{ ref('commanded_messages') }}

),

counted as (

    select
        command,
        count_if(state not in ('listed', 'stopped')) as issued,
        count_if(decision in ('redrive', 'retry', 'dead_letter', 'orphan', 'parked', 'dropped', 'adopted', 'follows')) as redriven,
        count_if(state = 'done') as done,
        count_if(state = 'on_its_way') as on_their_way,
        count_if(state = 'refused') as refused,
        count_if(sent_at is not null) as sent,
        count_if(state = 'recovered') as recovered,
        count_if(state = 'failed_again') as failed_again,
        min(issued_at) as first_issued_at,
        max(issued_at) as last_issued_at
    from messages
    group by command

),

later_commands as (

    -- what later commands (pause, resume, stop) ask of a command; a resume of a command that isn't paused lets the rest follow
    -- if canaries have failed
    select
        of_command as command,
        max(what = 'stop') as is_stopped,
        max_by(what, struct(closed_batch, partition, offset)) = 'pause' as is_paused
    from commands
    where of_command is not null
    group by of_command

),

clock as (

    select
        max(loop_time) as now,
        max_by(commands_since, batch) as commands_since
    from {{ ref('ticks') }}

),

redrives as (

    select
        ---------- which
        commands.command,
        commands.what,

        ---------- how far it is
        case
            when counted.issued >= commands.listed then 'done'
            when later_commands.is_stopped then 'stopped'
            -- it was carried out, and retention has removed what says so
            when commands.closed_batch < clock.commands_since then 'done'
            when later_commands.is_paused then 'paused'
            when commands.start_at > clock.now then 'waiting'
            when commands.what = 'redrive' and counted.issued = commands.canary then 'canary'
            else 'running'
        end as state,
        commands.listed,
        counted.issued,
        counted.redriven,
        counted.done,
        counted.on_their_way,
        counted.refused,

        ---------- what came of it
        counted.sent,
        counted.recovered,
        counted.failed_again,

        ---------- who, when and why
        commands.who,
        commands.reason,
        commands.ticket,
        commands.recorded_at as given_at,
        counted.first_issued_at,
        counted.last_issued_at,

        ---------- how
        commands.start_at,
        commands.rate_per_second,
        commands.canary,
        commands.destination
    from commands
    inner join counted on commands.command = counted.command
    left join later_commands on commands.command = later_commands.command
    cross join clock
    where commands.what <> 'note'

)

select * from redrives
