-- sequence_members: where each message of a sequence stands, and what becomes of it next. What belongs to no sequence is not here.
--
-- The loop runs this query for the sequences in which something has happened (orchestration/loop/open_sequences.py).
{%- set before_it %}
    partition by sequence_key
    -- the order of a sequence is that of its partition
    order by original_offset
    rows between unbounded preceding and 1 preceding
{%- endset %}

with

members as (

    select * from {{ ref('sequence_standings') }}

),

rules as (

    select routes from {{ ref('rules') }}

),

ordered as (

    select
        members.*,
        first_value(case when is_failing or is_dead then message_id end, true) over ({{ before_it }}) as waits_for,
        coalesce(max(is_failing) over ({{ before_it }}), false) as waits_for_a_retry,
        coalesce(max(is_dead) over ({{ before_it }}), false) as follows_a_dead_message,
        -- of the failures, the last one: a consumer tells by it which messages were sent before it
        max_by(sequence_epoch, case when sequence_epoch is not null then batch end) over (partition by sequence_key) as epoch
    from members

),

routed as (

    select
        ordered.*,
        case
            when ordered.is_following
                then {{ route_for_kind(routes_of('rules.routes', 'ordered.original_topic', 'ordered.consumer_group'), "'follows'") }}.followers
        end as of_the_dead
    from ordered
    cross join rules

)

select
    * except (waits_for_a_retry, follows_a_dead_message, of_the_dead),
    case
        when not is_following or waits_for_a_retry then null
        when not follows_a_dead_message or of_the_dead = 'release' then 'in_turn'
        when of_the_dead = 'hold' then null
        else 'follows_a_dead_message'
    end as next_order
from routed
