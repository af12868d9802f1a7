-- commanded_messages: each message that a complete command lists: what was decided about it, and what came of that.
with

commands as (

    select * from {{ ref('operator_commands') }}
    where status = 'complete' and of_command is null

),

listed as (

    select * from {{ ref('commanded_deliveries') }}

),

decided as (

    select * from {{ ref('orders_decided') }}

),

stopped as (

    select distinct of_command as command from {{ ref('operator_commands') }}
    where status = 'complete' and what = 'stop'

),

commanded_messages as (

    select
        ---------- which
        commands.command,
        listed.place,
        commands.what,
        coalesce(decided.message_id, listed.message_id) as message_id,
        listed.delivery_id,

        ---------- what was done
        case
            when decided.place is null then if(stopped.command is null, 'listed', 'stopped')
            when decided.decision is null then 'issued'
            when decided.decision = 'duplicate' then 'on_its_way'
            when decided.decision = 'refused' then 'refused'
            -- a redrive of what was refused reads the report once more: the message may die at once
            when decided.decision in ('dead_letter', 'orphan', 'parked', 'dropped', 'adopted') then 'failed_again'
            when decided.decision not in ('redrive', 'retry', 'follows') then 'done'
            when decided.has_recovered then 'recovered'
            when decided.has_failed_again then 'failed_again'
            when decided.sent_at is not null then 'sent'
            else 'waiting'
        end as state,
        decided.decision,
        decided.reason,
        decided.issued_at,
        decided.life_cycle,
        decided.topic,
        decided.sent_at,

        ---------- who and why
        commands.who,
        commands.reason as why,
        commands.ticket
    from listed
    inner join commands on listed.command = commands.command
    left join decided
        on
            listed.command = decided.command
            and listed.place = decided.place
    left join stopped on listed.command = stopped.command

)

select * from commanded_messages
