-- refusals: reports that were refused, as the rules allowed no destination, and are still refused: the last one of each message.
with

refused_once as (

    -- row groups without a refusal are skipped. A refusal that can't be decided anew has no delivery_id
    {{ decisions_shown("deliveries.decision = 'refused' and deliveries.delivery_id is not null") }}

),

refused as (

    select
        *,
        row_number() over (partition by message_id order by {{ input_order() }} desc) as from_last
    from refused_once

),

deliveries as (

    -- a decision may have two rows (see first_runs), but with the same batch: the maximum below is right
    select * from {{ ref('deliveries') }}

),

went_on as (

    select
        deliveries.message_id,
        max(deliveries.batch) as batch
    from deliveries
    left semi join refused on deliveries.message_id = refused.message_id
    where deliveries.kind is not null or deliveries.decision in {{ decisions_where(succeeds='yes', sends='') }}
    group by deliveries.message_id

),

reread as (

    -- Reports that were decided anew, by the delivery_id of their refusal. Not by message_id: that of a report from an unknown source changes once
    -- the rules know its source.
    select
        {{ event_input_id('events') }} as input_id,
        delivery_id
    from {{ ref('events') }} as events
    where kind = 'report' and delivery_id is not null

),

placed as (

    select reread.delivery_id
    from reread
    inner join deliveries on reread.input_id = deliveries.input_id
    where deliveries.input_id like 'loop/%' and deliveries.decision <> 'refused'

),

refusals as (

    select refused.* except (from_last)
    from refused
    left join went_on on refused.message_id = went_on.message_id
    left anti join placed on refused.delivery_id = placed.delivery_id
    where refused.from_last = 1 and coalesce(went_on.batch < refused.batch, true)

)

select * from refusals
