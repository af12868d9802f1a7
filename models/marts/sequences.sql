-- sequences: the sequences in which something has failed and is not processed, and those whose followers are being processed.
with

members as (

    select * from {{ slot('members', ref('sequence_members')) }}

),

sequences as (

    select
        consumer_group,
        original_topic,
        original_partition,
        sequence,
        sequence_key,
        case when max(is_failing) then 'waiting' when max(is_dead) then 'dead' when max(is_following) then 'following' else 'sent' end as state,
        min(first_failed_at) filter (where is_failing or is_dead) as held_since,
        max_by(sequence_epoch, batch) filter (where sequence_epoch is not null) as epoch,
        min_by(message_id, original_offset) filter (where is_failing or is_dead) as failed_message,
        count_if(is_following) as following,
        count_if(is_sent) as sent,
        count_if(died_as_a_follower) as dead
    from members
    group by sequence_key, consumer_group, original_topic, original_partition, sequence

)

select * from sequences
where failed_message is not null or following > 0 or sent > 0
