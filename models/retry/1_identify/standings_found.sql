-- standings_found: the standing of each input by what it says and which delivery it answers: `answer`, `first` (it begins a message, unless
-- messages_identified knows the message already), or the reason for which it is neither.
with

inputs as (

    select
        *,
        answered is not null and answered.kind is null as is_about_a_refusal,
        answered.kind = 'dead_letter' as is_about_a_dead_letter,
        coalesce(answered.kind = 'follower', false) as is_about_a_follower,
        input_kind in {{ order_kinds('dead_letter') }} as asks_about_a_dead_letter,
        input_kind in {{ order_kinds('waiting') }} as asks_about_what_waits,
        input_kind in {{ order_kinds('follower') }} as asks_about_a_follower,
        named_topic is null or origin_topic is null
        or (
            not has_no_place
            and (named_partition is null or named_offset is null or origin_partition is null or origin_offset is null)
        ) as is_unreadable
    from {{ ref('answers_found') }}

),

rules as (

    select topic_templates from {{ ref('rules') }}

),

placed as (

    select
        inputs.* except (
            is_about_a_refusal, is_about_a_dead_letter, is_about_a_follower, asks_about_a_dead_letter, asks_about_what_waits,
            asks_about_a_follower, is_unreadable
        ),
        case
            when inputs.input_kind in {{ reasons_where(decision='note') }} then 'fact'
            when inputs.input_kind = 'report' and inputs.is_about_a_dead_letter then 'answers_a_dead_letter'
            when inputs.asks_about_a_dead_letter and not inputs.is_about_a_dead_letter then 'wrong_kind_of_delivery'
            when inputs.asks_about_what_waits and (inputs.is_about_a_dead_letter or inputs.is_about_a_follower or inputs.is_about_a_refusal)
                then 'wrong_kind_of_delivery'
            when inputs.asks_about_a_follower and not inputs.is_about_a_follower then 'wrong_kind_of_delivery'
            -- To redrive a refused report, the loop writes it into `events` once more, as a report. If an order comes instead, that was done before, or
            -- the order names a topic, which is allowed for dead letters only, or the report is gone.
            when inputs.input_kind = 'redrive' and inputs.is_about_a_refusal and inputs.order_detail = 'answered_already' then 'answered_already'
            when inputs.input_kind = 'redrive' and inputs.is_about_a_refusal and coalesce(inputs.order_detail, 'retry') <> 'retry'
                then 'wrong_kind_of_delivery'
            when inputs.input_kind = 'redrive' and inputs.is_about_a_refusal then 'payload_was_dropped'
            when inputs.input_kind = 'redrive' and inputs.answered.privacy.payload = 'drop' then 'payload_was_dropped'
            when inputs.input_kind in ('send_now', 'cancel') and inputs.answered is not null and inputs.order_detail = 'not_waiting' then 'not_waiting'
            when inputs.input_kind = 'report' and inputs.speaks_for is null then 'unknown_source'
            -- Without this, who may report about one topic could make messages of another one die. An operator may have sent them to a topic of the source's.
            when
                inputs.input_kind = 'report'
                and not {{ is_spoken_for('inputs.answered.original_topic', 'inputs.speaks_for') }}
                and not coalesce({{ is_spoken_for('inputs.answered.topic', 'inputs.speaks_for') }}, false)
                then 'not_spoken_for'
            when inputs.answered is not null then 'answer'
            -- a bug: a failed send always has its delivery. No decision follows from `lost`, so that `deliveries` stops the decide step
            when inputs.input_kind = 'failed_send' then 'lost'
            when inputs.input_kind in {{ order_kinds() }} then 'no_such_delivery'
            when inputs.is_unreadable then 'unreadable'
            -- A failure on one of redrive's own topics has a delivery, or is an orphan. Of an adopted dead letter only the original topic counts: it
            -- may have failed on a retry topic.
            when {{ is_our_destination('if(inputs.adopts, inputs.origin_topic, inputs.named_topic)', 'inputs.consumer_group', 'inputs.speaks_for', 'rules.topic_templates') }}
                then 'orphan'
            when not {{ is_spoken_for('inputs.origin_topic', 'inputs.speaks_for') }} then 'not_spoken_for'
            else 'first'
        end as standing
    from inputs
    cross join rules

),

identified as (

    select
        *,
        case
            when standing = 'first' and has_no_place
                then {{ message_id('consumer_group', 'report_topic', 'report_partition', 'report_offset') }}
            when standing = 'first'
                then {{ message_id('consumer_group', 'origin_topic', 'origin_partition', 'origin_offset') }}
            when standing = 'answer' and input_kind in ('redrive', 'purge')
                then {{ message_id('answered.consumer_group', 'answered.original_topic', 'answered.original_partition', 'answered.original_offset') }}
        end as plain_id
    from placed

)

select * from identified
