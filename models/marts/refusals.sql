-- refusals: what was refused and stands there: reports that the rules of their day had no place for, the last of each message.
{{ config(materialized='ephemeral', contract={'enforced': false}) }}

with

decisions as (

    select * from {{ ref('decisions') }}

),

decisions_once as (

    -- the same, for what needs no payload: what was purged of them is not looked up
    select * from {{ ref('decisions_once') }}

),

refused as (

    -- whole row groups have none, and are skipped; what was refused for good has no name
    select
        *,
        row_number() over (partition by message_id order by batch desc, cause desc) as from_last
    from decisions
    where decision = 'refused' and delivery_id is not null

),

went_on as (

    select
        decisions_once.message_id,
        max(decisions_once.batch) as batch
    from decisions_once
    left semi join refused on decisions_once.message_id = refused.message_id
    where decisions_once.kind is not null or decisions_once.decision in ('dropped', 'cancelled')
    group by decisions_once.message_id

),

told_again as (

    -- under rules that know its source, a message has another name
    select
        {{ event_cause('events') }} as cause,
        delivery_id
    from {{ ref('events') }} as events
    where kind = 'report' and delivery_id is not null

),

placed as (

    select told_again.delivery_id
    from told_again
    inner join decisions_once on told_again.cause = decisions_once.cause
    where decisions_once.cause like 'loop/%' and decisions_once.decision <> 'refused'

),

refusals as (

    select refused.* except (from_last)
    from refused
    left join went_on on refused.message_id = went_on.message_id
    left anti join placed on refused.delivery_id = placed.delivery_id
    where refused.from_last = 1 and coalesce(went_on.batch < refused.batch, true)

)

select * from refusals
