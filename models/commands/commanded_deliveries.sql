-- commanded_deliveries: the list of each command, complete or not: the deliveries that it is about, in order. operator_commands has its status.
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
