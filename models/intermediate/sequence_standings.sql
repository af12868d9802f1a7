-- sequence_standings: where each message of a sequence stands, by its last decision that changed it and by what its group has committed.
--
-- The loop fills the slots with the decisions about some sequences, and with the time before which none of their retries was due.
with

decisions as (

    select * from {{ slot('decisions_of_sequences', ref('decisions')) }}
    where sequence is not null and outbox_row is null

),

rules as (

    select rules_hash from {{ ref('rules') }}

),

processed as (

    select
        settled_sends.delivery_id,
        settled_sends.due_at
    from (
        {{ settled_sends(slot('due_since', 'timestamp_micros(0)')) }}
    ) as settled_sends
    group by settled_sends.delivery_id, settled_sends.due_at

),

last_decisions as (

    {{ last_decisions_of('decisions') }}

),

annotations as (

    -- of one dead letter each: a message that was redriven and dies again is dead again
    select
        prior_delivery as delivery_id,
        max_by(decision, {{ input_order() }}) = 'discarded' as is_discarded
    from decisions
    where decision in ('discarded', 'restored')
    group by prior_delivery

),

refused as (

    -- orders that were refused under the present rules, which would refuse them again
    select
        prior_delivery as delivery_id,
        prior_due as due_at,
        true as is_refused
    from decisions
    where
        prior_delivery is not null and decision = 'refused'
        and rules_hash in (select rules.rules_hash from rules)
    group by prior_delivery, prior_due

),

described as (

    select
        last_decisions.consumer_group,
        last_decisions.original_topic,
        last_decisions.original_partition,
        last_decisions.original_offset,
        last_decisions.sequence,
        {{ sequence_key('last_decisions.consumer_group', 'last_decisions.original_topic', 'last_decisions.original_partition', 'last_decisions.sequence') }}
            as sequence_key,
        last_decisions.message_id,
        last_decisions.delivery_id,
        last_decisions.due_at,
        last_decisions.batch,
        last_decisions.recorded_at,
        last_decisions.first_failed_at,
        last_decisions.sequence_epoch,
        last_decisions.decision = 'follows' as is_following,
        {{ is_dead_letter('last_decisions') }} and last_decisions.error_kind = 'follows' as died_as_a_follower,
        last_decisions.kind in ('retry', 'redrive') and processed.delivery_id is null as is_open,
        last_decisions.sequence_place is not null as was_following,
        ({{ is_dead_letter('last_decisions') }} or last_decisions.decision = 'refused')
        and not coalesce(last_decisions.error_kind = 'follows', false)
        and not coalesce(annotations.is_discarded, false) as is_dead,
        coalesce(refused.is_refused, false) as is_refused
    from last_decisions
    left join annotations on last_decisions.delivery_id = annotations.delivery_id
    left join processed
        on
            last_decisions.delivery_id = processed.delivery_id
            and last_decisions.due_at = processed.due_at
    left join refused
        on
            last_decisions.delivery_id = refused.delivery_id
            and last_decisions.due_at = refused.due_at

),

members as (

    select
        * except (is_open, was_following),
        coalesce(is_open and not was_following, false) as is_failing,
        coalesce(is_open and was_following, false) as is_sent
    from described

)

select * from members
