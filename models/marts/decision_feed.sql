-- decision_feed: each decision about a message as JSON: what was decided and why, and whether the message is tried again.
with

decisions as (

    -- not `decisions`, which looks up purges for each: the loop writes the feed right after the decision, when nothing of it is purged
    {{ decisions_once("deliveries.decision not in ('note', 'duplicate')") }}

),

decision_feed as (

    select
        batch,
        message_id,
        decision in ('retry', 'redrive') as will_retry,
        to_json(named_struct(
            'message_id', message_id,
            'life_cycle', life_cycle,
            -- the name of life_cycle before table version 2, which consumers may still read
            'life', life_cycle,
            'decision', decision,
            'reason', reason,
            'will_retry', decision in ('retry', 'redrive'),
            'attempt', attempt,
            'max_attempts', max_attempts,
            'decided_at', {{ iso_time('recorded_at') }},
            'due_at', {{ iso_time('due_at') }},
            'delay_ms', delay_ms,
            'topic', topic,
            'error_class', error_class,
            'error_message', error_message,
            'error_kind', error_kind,
            'rule', rule,
            'matched', matched,
            'policy', policy,
            'policy_text', policy_text,
            'failed_at', {{ iso_time('failed_at') }},
            'consumer_group', consumer_group,
            'original_topic', original_topic,
            'original_partition', original_partition,
            'original_offset', original_offset,
            'source', source,
            'delivery_id', delivery_id,
            'rules_hash', rules_hash
        )) as record
    from decisions

)

select * from decision_feed
