-- followers: the messages that were not tried, as an earlier one of their sequence has failed; and what becomes of each next.
with

members as (

    select * from {{ ref('sequence_members') }}

)

select
    consumer_group,
    original_topic,
    original_partition,
    original_offset,
    sequence,
    sequence_key,
    message_id,
    case when is_following then 'following' else 'dead' end as state,
    recorded_at as since,
    waits_for as failed_message,
    epoch,
    next_order,
    is_refused,
    delivery_id,
    due_at
from members
where is_following or died_as_a_follower
