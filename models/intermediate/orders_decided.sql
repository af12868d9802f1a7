-- orders_decided: what was decided about each order of operators' commands, and whether the message has recovered or failed again since.
with

orders as (

    select
        {{ event_input_id('events') }} as input_id,
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
        decisions.life_cycle,
        decisions.topic
    from orders
    left join decisions on orders.input_id = decisions.input_id

),

sent_on as (

    select
        decided.command,
        decided.place,
        later.batch,
        later.delivery_id,
        later.due_at,
        decided.batch < later.batch and {{ failed_again('later') }} as has_failed_again
    from decided
    inner join decisions as later
        on
            decided.message_id = later.message_id
            and decided.life_cycle = later.life_cycle
            and decided.batch <= later.batch
    where decided.decision in ('redrive', 'retry', 'follows') and later.decision <> 'duplicate'
        -- an order that was refused changes nothing; a report that was refused says that the message failed again
        and (later.decision <> 'refused' or later.report_topic is not null)

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
        -- both may be true: the first send failed again, and a later one recovered
        max(sent_on.has_failed_again) as has_failed_again,
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

)

select
    decided.*,
    came_of_it.sent_at,
    came_of_it.has_failed_again,
    came_of_it.has_recovered
from decided
left join came_of_it
    on
        decided.command = came_of_it.command
        and decided.place = came_of_it.place
