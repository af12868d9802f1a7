-- commanded_deliveries: the list of each command: which deliveries it is about, in their order. Whether the command holds is in operator_commands.
with

parts as (

    select * from {{ ref('command_parts') }}

),

listed as (

    select
        command,
        coalesce(listed_before, 0) as listed_before,
        posexplode(deliveries) as (place_in_part, delivery)
    from parts

),

commanded as (

    select
        command,
        cast(listed_before + place_in_part as int) as place,
        delivery.delivery_id,
        delivery.due_at,
        {{ message_of('delivery.delivery_id') }} as message_id
    from listed

)

select * from commanded
