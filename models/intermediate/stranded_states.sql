-- stranded_states: what died and what was refused, each with what has been done about it since, and what was said of it.
with

deaths as (

    select * from {{ ref('deaths') }}

),

copies as (

    select * from {{ ref('copies') }}

),

later_decisions as (

    select * from {{ ref('later_decisions') }}

),

refusals as (

    select * from {{ ref('refusals') }}

),

last_words as (

    select * from {{ ref('last_words') }}

),

purges as (

    select * from {{ ref('purges') }}

),

recoveries as (

    select * from {{ ref('recoveries') }}

),

dead as (

    select
        deaths.* except (topic, partition),
        copies.topic,
        copies.partition,
        copies.offset,
        copies.sent_at as dead_at,
        copies.omitted,
        greatest(deaths.life, later_decisions.lives) as lives,
        case
            when later_decisions.last_word.prior_delivery = deaths.delivery_id
                and later_decisions.last_word.decision = 'discarded'
                and later_decisions.last_word.batch > coalesce(later_decisions.tried_batch, -1)
                then 'discarded'
            when later_decisions.tried_batch > deaths.batch and recoveries.delivery_id is not null then 'recovered'
            when later_decisions.tried_batch > deaths.batch then 'redriven'
            else 'open'
        end as state,
        case when later_decisions.tried_batch > deaths.batch then recoveries.recovered_at end as recovered_at
    from deaths
    inner join copies
        on
            deaths.message_id = copies.message_id
            and deaths.delivery_id = copies.delivery_id
            and deaths.due_at = copies.due_at
    left join later_decisions on deaths.message_id = later_decisions.message_id
    left join recoveries
        on
            later_decisions.last_try.delivery_id = recoveries.delivery_id
            and later_decisions.last_try.due_at = recoveries.due_at

),

refused as (

    select
        refusals.* except (topic, partition),
        cast(null as string) as topic,
        cast(null as int) as partition,
        cast(null as bigint) as offset,
        refusals.recorded_at as dead_at,
        cast(null as string) as omitted,
        greatest(refusals.life, later_decisions.lives) as lives,
        case
            when later_decisions.last_word.prior_delivery = refusals.delivery_id and later_decisions.last_word.decision = 'discarded'
                then 'discarded'
            else 'refused'
        end as state,
        cast(null as timestamp) as recovered_at
    from refusals
    left join later_decisions on refusals.message_id = later_decisions.message_id

),

stranded as (

    -- decisions both, with the same columns after theirs
    select * from dead
    union all
    select * from refused

)

select
    stranded.*,
    last_words.note,
    last_words.ticket,
    case when stranded.life <= purges.life then purges.purged_at end as purged_at
from stranded
left join last_words on stranded.message_id = last_words.message_id
left join purges on stranded.message_id = purges.message_id
