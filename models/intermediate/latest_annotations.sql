-- latest_annotations: by message, the last reason and the last ticket of operators' commands about its dead letter or refusal.
with

orders as (

    -- files without such events are skipped
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
        -- the ticket of the last command that names one
        max_by(commands.ticket, case when commands.ticket is not null then struct(orders.batch, orders.index) end) as ticket
    from orders
    inner join commands on orders.command = commands.command
    group by {{ message_of('orders.delivery_id') }}

)

select * from latest_annotations
