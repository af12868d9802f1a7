{#- The routes that match a topic and a group, for all kinds of errors, in the given order.

    routes: an array of routes, the most specific first, as in `rules`. -#}
{% macro routes_of(routes, topic, consumer_group) -%}
    filter(
        {{ routes }},
        r -> coalesce({{ topic_matches(topic, 'r.topic') }}, false)
            and (r.consumer_group = '*' or r.consumer_group <=> {{ consumer_group }})
    )
{%- endmacro %}
