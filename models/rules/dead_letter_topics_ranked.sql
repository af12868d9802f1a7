-- dead_letter_topics_ranked: the dead letter topics of error classes in one row, the most specific first: the first that matches is the one.
with

topics as (

    select
        {{ regular_expression('error_class') }} as error_class,
        topic,
        consumer_group,
        dead_letter_topic
    from {{ ref('dead_letter_topics') }}

),

ancestors as (

    select * from {{ ref('error_class_ancestors') }}

),

named as (

    select
        *,
        {{ class_match('error_class') }} as matches,
        {{ class_named('error_class') }} as class_name
    from topics

),

ranked as (

    select
        {{ route_rank('named.topic', 'named.consumer_group') }} as rank,
        case named.matches when 'exact' then 1 when 'pattern' then 2 else 3 end as by_match,
        case named.matches when 'pattern' then -length(named.error_class) else coalesce(ancestors.distance, 0) end as by_distance,
        -- whatever is known to descend from the class, and the class itself though nothing is known about it
        case when named.matches <> 'pattern' then coalesce(ancestors.error_class, named.class_name) end as error_class,
        case when named.matches = 'pattern' then named.error_class end as class_pattern,
        named.topic,
        named.consumer_group,
        named.dead_letter_topic
    from named
    left join ancestors on named.matches = 'parent' and named.class_name = ancestors.ancestor

),

gathered as (

    select coalesce(sort_array(collect_list(struct(*))), array()) as dead_letter_topics
    from ranked

)

select * from gathered
