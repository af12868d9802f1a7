-- rules_found: the routes and error rules that may apply to each input. Inputs with the same scope and error classes are compared with the rules
-- once. The inputs are those of this run, or, for `redrive classify`, those of the view that the var `judge` names.
{%- set messages_identified = ref('messages_identified') %}

with

failures as (

    select
        *,
        transform(causes, c -> coalesce(c.error_class, '')) as classes
    from {{ api.Relation.create(identifier=var('judge')) if var('judge') else messages_identified }}

),

rules as (

    select * from {{ ref('rules') }}

),

alike as (

    select
        source,
        original_topic,
        consumer_group,
        error_class,
        classes,
        collect_list(struct(failures.*)) as failures
    from failures
    group by source, original_topic, consumer_group, error_class, classes

),

in_scope as (

    select
        alike.failures,
        alike.classes,
        rules.*,
        filter(rules.other_rules, r -> {{ is_in_scope('r.what', 'alike.source', 'alike.original_topic', 'alike.consumer_group') }}) as other_rules_here,
        {{ routes_of('rules.routes', 'alike.original_topic', 'alike.consumer_group') }} as routes_here,
        filter(
            rules.dead_letter_topics,
            t -> coalesce(t.error_class = alike.error_class, alike.error_class rlike t.class_pattern, false)
                and coalesce({{ topic_matches('alike.original_topic', 't.topic') }}, false)
                and (t.consumer_group = '*' or t.consumer_group <=> alike.consumer_group)
        ) as dead_letter_topics_here,
        -- if all of them are wrappers, the first
        greatest(array_position(transform(alike.classes, c -> not array_contains(rules.transparent_wrappers, c)), true) - 1, 0) as outermost,
        transform(alike.classes, class -> filter(
            rules.class_rules[class],
            r -> {{ is_in_scope('r.what', 'alike.source', 'alike.original_topic', 'alike.consumer_group') }}
        )) as class_rules_here
    from alike
    cross join rules

),

sorted as (

    -- A rule is tried on each cause that is no transparent wrapper. Two kinds of rules are tried once, as each cause gives the same answer: a
    -- rule without conditions, on the first cause, wrapper or not; a rule for a code or a header alone, on the outermost cause that is no wrapper.
    select
        failures,
        rules_hash,
        header_names,
        routes_here as routes,
        try_element_at(dead_letter_topics_here, 1).dead_letter_topic as dead_letter_topic_of_class,
        transform(sources, s -> s.topic) as source_topics,
        array_sort(flatten(transform(classes, (class, place) -> concat(
            transform(
                filter(
                    coalesce(class_rules_here[place], array()),
                    r -> not array_contains(transparent_wrappers, class)
                ),
                r -> {{ rule_candidate('r.what', 'place', 'r.distance') }}
            ),
            transform(
                filter(
                    other_rules_here,
                    r -> case
                        when r.what.is_default then place = 0
                        when r.what.class_pattern is null and r.what.message is null then place = outermost
                        else not array_contains(transparent_wrappers, class) and coalesce(class rlike r.what.class_pattern, true)
                    end
                ),
                r -> {{ rule_candidate('r.what', 'place', 'cast(null as int)') }}
            )
        )))) as candidates
    from in_scope

),

found as (

    select
        explode(failures) as failure,
        rules_hash,
        routes,
        dead_letter_topic_of_class,
        source_topics,
        candidates
    from sorted

)

select
    failure.*,
    rules_hash,
    routes,
    dead_letter_topic_of_class,
    source_topics,
    candidates
from found
