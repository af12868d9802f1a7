{#- A query for one row like that of `rules`, made of seeds that are not loaded yet, with the columns sources, routes, dead_letter_topics and
    topic_templates. The dead letter topics are in the order of the file, not by how specific they are.

    sources, routes, dead_letter_topics: relations like the seeds; dead_letter_topics has the column `line` as well. -#}
{% macro routing_of_seeds(sources, routes, dead_letter_topics) -%}
    select
        sources,
        routes,
        dead_letter_topics,
        {{ topic_templates('routes', 'dead_letter_topics') }} as topic_templates
    from (
        select
            (select coalesce(collect_list(struct(*)), array()) from {{ sources }}) as sources,
            (
                select coalesce(sort_array(collect_list(struct(*))), array())
                from ({{ ranked_routes(routes, ['retry_topic', 'dead_letter_topic', 'sequence']) }})
            ) as routes,
            (
                select coalesce(sort_array(collect_list(struct(line, topic, consumer_group, error_class, dead_letter_topic))), array())
                from {{ dead_letter_topics }}
            ) as dead_letter_topics
    )
{%- endmacro %}
