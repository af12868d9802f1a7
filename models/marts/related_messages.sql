-- related_messages: pairs of dead letters that may have the same cause. Ask for one message_id: all pairs are as many as the square of the messages.
with

dead_letters as (

    select
        message_id,
        original_offset,
        state,
        original_topic,
        consumer_group,
        error_class,
        dead_at,
        process_id,
        fingerprint,
        case when length(key) > 0 then sha2(key, 256) end as key_hash,
        unix_seconds(dead_at) div 60 as minute
    from {{ ref('dead_letters') }}

),

asked as (

    -- a condition on message_id reaches this side before the join. Messages at most a minute apart are in the same or in neighbouring minutes
    select
        message_id,
        original_offset,
        dead_at,
        inline(array(
            struct('key' as relation, key_hash as mark),
            struct('process' as relation, process_id as mark),
            struct('error' as relation, fingerprint as mark),
            struct('time' as relation, concat_ws(' ', minute - 1, consumer_group) as mark),
            struct('time' as relation, concat_ws(' ', minute, consumer_group) as mark),
            struct('time' as relation, concat_ws(' ', minute + 1, consumer_group) as mark)
        ))
    from dead_letters

),

others as (

    select
        * except (original_offset, key_hash, process_id, fingerprint, minute, consumer_group),
        inline(array(
            struct('key' as relation, key_hash as mark),
            struct('process' as relation, process_id as mark),
            struct('error' as relation, fingerprint as mark),
            struct('time' as relation, concat_ws(' ', minute, consumer_group) as mark)
        ))
    from dead_letters

),

related_messages as (

    select
        asked.message_id,
        asked.original_offset,
        asked.relation,
        others.message_id as related_id,
        unix_millis(others.dead_at) - unix_millis(asked.dead_at) as later_ms,
        others.state as related_state,
        others.original_topic as related_topic,
        others.error_class as related_error_class,
        others.dead_at as related_dead_at
    from asked
    inner join others
        on
            asked.relation = others.relation
            and asked.mark = others.mark
            and asked.message_id <> others.message_id
    where asked.relation <> 'time' or abs(unix_millis(others.dead_at) - unix_millis(asked.dead_at)) <= 60000

)

select * from related_messages
