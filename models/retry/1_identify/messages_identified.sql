-- messages_identified: the message that each input is about; and whether the input answers a delivery, begins a message or a life cycle, or repeats.
-- Longer than other models, as it names each column that the later ones see.
with

inputs as (

    select * from {{ ref('standings_found') }}

),

known as (

    select * from {{ ref('messages_known') }}

),

purges as (

    select * from {{ ref('purges_known') }}

),

named as (

    -- the content seen first at some coordinates (null: by reference) gets the id without a hash; other content there is another message, with a hash
    select
        inputs.*,
        known.messages,
        case
            when inputs.content_hash is null or inputs.content_hash = coalesce(
                known.content_hash,
                first_value(inputs.content_hash, true) over (
                    partition by coalesce(inputs.plain_id, inputs.input_id)
                    order by inputs.batch, inputs.report_topic, inputs.report_partition, inputs.report_offset
                )
            ) then inputs.plain_id
            else concat(inputs.plain_id, '~', left(inputs.content_hash, 8))
        end as first_id
    from inputs
    left join known on inputs.plain_id = known.plain_id

),

compared as (

    select
        named.* except (messages),
        purges.reach as purged,
        messages[if(input_kind in ('redrive', 'purge'), answered.message_id, first_id)] as known,
        -- a new failure, not a copy of an old report: the message's last delivery was closed before, and the failure happened after quiet_until
        input_kind = 'report' and coalesce(messages[first_id].closed_batch < batch, false) and happened_at > messages[first_id].quiet_until as is_news
    from named
    left join purges on named.answered.message_id = purges.message_id

),

related as (

    -- A new failure of a message that has ended begins another life cycle. That of one that was sent again answers the delivery, pointer or not.
    select
        * except (known, purged, is_news, standing, answered),
        coalesce(known.life_cycle, 0) as known_life_cycle,
        -- a refusal has no place among the life cycles: what was decided after it may be in the same one
        coalesce(
            input_kind = 'redrive' and known.life_cycle > answered.life_cycle
            or input_kind = 'purge' and answered.kind is null and known.last_delivery.due_at > answered.due_at,
            false
        ) as has_begun_anew,
        -- by a purge of what was decided later: as the macro is_purged, by due times, as the batch of what is redriven is not known here
        input_kind = 'redrive' and coalesce(
            exists(purged, one -> answered.life_cycle <= one.life_cycle and answered.due_at <= one.due_at), false
        ) as is_purged,
        known is null or (is_news and coalesce(known.last_delivery.kind = 'dead_letter', true)) as begins_a_life_cycle,
        case when is_news and known.last_delivery.kind <> 'dead_letter' then 'answer' else standing end as standing,
        case when is_news and known.last_delivery.kind <> 'dead_letter' then known.last_delivery else answered end as answered
    from compared

)

select
    ---------- which
    input_id,
    batch,
    recorded_at,
    input_kind,
    coalesce(source, answered.source) as source,
    dialect,
    adopts,
    report_topic,
    report_partition,
    report_offset,
    report_index,
    order_detail,

    ---------- what it is
    case
        when standing = 'first' and not begins_a_life_cycle then 'known_already'
        when standing = 'first' and known_life_cycle > 0 then 'new_life_cycle'
        else standing
    end as standing,
    case
        when standing in ('answer', 'wrong_kind_of_delivery', 'payload_was_dropped', 'not_waiting', 'answered_already') then answered.message_id
        when standing = 'first' then first_id
        when standing in ('fact', 'no_such_delivery') then concat('loop:', input_id)
        else {{ message_id('consumer_group', 'report_topic', 'report_partition', 'report_offset') }}
    end as message_id,
    case
        when standing = 'answer' and input_kind = 'redrive' then answered.life_cycle + 1
        when standing in ('answer', 'wrong_kind_of_delivery', 'payload_was_dropped', 'not_waiting', 'answered_already') then answered.life_cycle
        when begins_a_life_cycle then known_life_cycle + 1
        else known_life_cycle
    end as life_cycle,
    answered,
    has_begun_anew,
    is_purged,

    ---------- where the message came from
    case standing when 'answer' then answered.original_topic when 'first' then origin_topic else report_topic end as original_topic,
    case standing when 'answer' then answered.original_partition when 'first' then origin_partition else report_partition end
        as original_partition,
    case standing when 'answer' then answered.original_offset when 'first' then origin_offset else report_offset end as original_offset,
    case standing when 'answer' then answered.original_timestamp when 'first' then origin_timestamp end as original_timestamp,
    case standing when 'answer' then answered.consumer_group else consumer_group end as consumer_group,
    coalesce(content_hash, answered.content_hash) as content_hash,
    named_topic,

    ---------- why it failed, and when
    error_class,
    error_message,
    causes,
    error_code,
    rule_headers,
    stated_kind,
    sent_error_kind,
    problems,
    stated_attempts,
    stated_due,
    least(failed_at, recorded_at) as failed_at,
    -- unlike failed_at, it may be later than recorded_at: it is compared with earlier times by the reporter's own clock
    happened_at
from related
