-- latest_annotations: the last reason and ticket of operators about a message that is dead, or was refused
with

orders as (

    -- all else has no command, and its files are skipped
    select * from {{ ref('events') }}
    where command is not null and delivery_id is not null

),

commands as (

    select * from {{ ref('operator_commands') }}
    where what in {{ order_kinds('dead_letter') }}

),

latest_annotations as (

    select
        {{ message_of('orders.delivery_id') }} as message_id,
        max_by(commands.reason, struct(orders.batch, orders.index)) as note,
        -- one that names no ticket leaves that of the one before
        max_by(commands.ticket, case when commands.ticket is not null then struct(orders.batch, orders.index) end) as ticket
    from orders
    inner join commands on orders.command = commands.command
    group by {{ message_of('orders.delivery_id') }}

)

select * from latest_annotations
