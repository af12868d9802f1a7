-- commanded_messages: each message of each command: what was decided about it, and what became of that.
with

commands as (

    select * from {{ ref('operator_commands') }}
    where status = 'complete' and of_command is null

),

listed as (

    select * from {{ ref('commanded_deliveries') }}

),

orders as (

    select
        {{ event_cause('events') }} as cause,
        command,
        index as place,
        recorded_at as issued_at
    from {{ ref('events') }} as events
    where command is not null and delivery_id is not null

),

decisions as (

    select * from {{ ref('decisions') }}

),

decided as (

    select
        orders.command,
        orders.place,
        orders.issued_at,
        decisions.batch,
        decisions.decision,
        decisions.reason,
        decisions.message_id,
        decisions.life,
        decisions.topic
    from orders
    left join decisions on orders.cause = decisions.cause

),

sent_on as (

    select
        decided.command,
        decided.place,
        decided.batch as ordered_batch,
        later.batch,
        later.decision,
        later.report_topic,
        later.delivery_id,
        later.due_at
    from decided
    inner join decisions as later
        on
            decided.message_id = later.message_id
            and decided.life = later.life
            and decided.batch <= later.batch
    where decided.decision in ('redrive', 'retry') and later.decision not in ('duplicate', 'refused')

),

results as (

    select * from {{ ref('publish_results') }}
    where outcome = 'delivered' and kind <> 'dead_letter'

),

recoveries as (

    select * from {{ ref('recoveries') }}

),

came_of_it as (

    select
        sent_on.command,
        sent_on.place,
        max(results.sent_at) as sent_at,
        -- what was sent first may fail, and what follows succeed: both are told
        max(sent_on.batch > sent_on.ordered_batch and (sent_on.report_topic is not null or sent_on.decision in ('dead_letter', 'parked'))) as has_failed_again,
        max_by(recoveries.delivery_id is not null, struct(sent_on.batch, sent_on.due_at)) as has_recovered
    from sent_on
    left join results
        on
            sent_on.delivery_id = results.delivery_id
            and sent_on.due_at = results.due_at
    left join recoveries
        on
            sent_on.delivery_id = recoveries.delivery_id
            and sent_on.due_at = recoveries.due_at
    group by sent_on.command, sent_on.place

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
            when decided.place is null then 'listed'
            when decided.decision is null then 'issued'
            when decided.decision = 'duplicate' then 'on_its_way'
            when decided.decision = 'refused' then 'refused'
            -- what was refused is told again, and may die of it at once
            when decided.decision in ('dead_letter', 'orphan', 'parked', 'dropped') then 'failed_again'
            when decided.decision not in ('redrive', 'retry') then 'done'
            when came_of_it.has_recovered then 'recovered'
            when came_of_it.has_failed_again then 'failed_again'
            when came_of_it.sent_at is not null then 'sent'
            else 'waiting'
        end as state,
        decided.decision,
        decided.reason,
        decided.issued_at,
        decided.life,
        decided.topic,
        came_of_it.sent_at,

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
    left join came_of_it
        on
            listed.command = came_of_it.command
            and listed.place = came_of_it.place

)

select * from commanded_messages
