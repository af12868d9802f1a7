-- operator_commands: every command that operators gave, complete or not. It is the audit log. Only complete ones are executed.
with

records as (

    select * from {{ ref('command_records') }}

),

checked as (

    select * from {{ ref('commands_checked') }}

),

judged as (

    select
        ---------- which
        command,
        case when problem is null then 'complete' when not is_closed then 'incomplete' else 'invalid' end as status,
        problem,

        ---------- what, who and why
        what,
        listed,
        who,
        reason,
        ticket,

        ---------- how
        rate as rate_per_second,
        start_at,
        canary,
        assume_after_ms,
        to_stated as destination,
        of_command,

        ---------- where it came from
        recorded_at,
        first_batch,
        closed_batch,
        partition,
        offset
    from checked

    union all

    select
        ---------- which
        cast(null as string) as command,
        'invalid' as status,
        'its key is not the id of a command' as problem,

        ---------- what, who and why
        what,
        size(deliveries) as listed,
        who,
        reason,
        ticket,

        ---------- how
        rate as rate_per_second,
        start_at,
        canary,
        assume_after_ms,
        to_stated as destination,
        of_command,

        ---------- where it came from
        recorded_at,
        batch as first_batch,
        batch as closed_batch,
        partition,
        offset
    from records
    where command is null

)

select * from judged
