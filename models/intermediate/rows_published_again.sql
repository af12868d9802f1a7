-- rows_published_again: messages from outboxes that had ended, and were published after that. A row that its owner makes pending again, and that needs no
-- decision, is sent as it is read: only its result says so.
with

ended as (

    select
        message_id,
        max(batch) as batch
    from {{ ref('deliveries') }}
    where
        outbox_row is not null
        -- a refused order of an operator's ends nothing
        and (kind = 'dead_letter' or decision in ('parked', 'dropped', 'cancelled') or (decision = 'refused' and not startswith(input_id, 'loop/')))
    group by message_id

),

published as (

    select
        message_id,
        batch
    from {{ ref('publish_results') }}
    where kind = 'publish' and outcome = 'delivered'

)

select
    ended.message_id,
    max(published.batch) as batch
from ended
inner join published
    on
        ended.message_id = published.message_id
        and ended.batch < published.batch
group by ended.message_id
