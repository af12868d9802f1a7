{#- A query for `redrive check`: the destinations of a topic and group, by its routes for all kinds of errors and by the dead letter topics of error
    classes; `place` gives their order, and
    `sequence` is not empty where records must stay in order. Templates with {kind} are left out, as are those with {group} if the group is unknown.

    asked: a relation with topic, and with consumer_group, null if unknown. rules: a relation as `routing_of_seeds` makes it. -#}
{% macro destinations_asked(asked, rules) -%}
    select
        topic,
        consumer_group,
        place,
        {{ topic_from_template('one.template', 'topic', "coalesce(consumer_group, '')", "''") }} as destination,
        one.what,
        one.error_class,
        if(one.what = 'retries', sequence, '') as sequence
    from (
        select
            asked.topic,
            asked.consumer_group,
            {{ route_for_kind(routes_of('routes', 'asked.topic', 'asked.consumer_group'), "'follows'") }}.sequence as sequence,
            posexplode(concat(
                flatten(transform(
                    array_distinct(transform(
                        array('{{ var('error_kinds') | join("', '") }}'),
                        kind -> {{ route_for_kind(routes_of('routes', 'asked.topic', 'asked.consumer_group'), 'kind') }}
                    )),
                    route -> array(
                        struct(route.retry_topic as template, 'retries' as what, cast(null as string) as error_class),
                        struct(route.dead_letter_topic as template, 'dead letters' as what, cast(null as string) as error_class)
                    )
                )),
                transform(
                    filter(
                        dead_letter_topics,
                        d -> {{ topic_matches('asked.topic', 'd.topic') }} and (d.consumer_group = '*' or d.consumer_group <=> asked.consumer_group)
                    ),
                    d -> struct(d.dead_letter_topic as template, 'dead letters' as what, d.error_class as error_class)
                )
            )) as (place, one)
        from {{ asked }} as asked
        cross join {{ rules }}
    )
    where
        one.template <> '{{ var('no_topic') }}'
        and not contains(one.template, '{kind}')
        and (consumer_group is not null or not contains(one.template, '{group}'))
{%- endmacro %}
