{#- The routes that match a topic and a group, for any kind of error, in the order that they have.

    routes: an array of routes, those that go before others in front, as `rules` has it. -#}
{% macro routes_of(routes, topic, consumer_group) -%}
    filter(
        {{ routes }},
        r -> coalesce({{ topic_matches(topic, 'r.topic') }}, false)
            and (r.consumer_group = '*' or r.consumer_group <=> {{ consumer_group }})
    )
{%- endmacro %}
