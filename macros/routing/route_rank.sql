{#- A sort key for how specific a route is: a topic's name before a regular expression before *, a longer expression before a shorter one,
    then a group's name before *. Smaller is more specific. -#}
{% macro route_rank(topic, consumer_group) -%}
    struct(
        case when {{ topic }} = '*' then 2 when startswith({{ topic }}, '^') then 1 else 0 end as by_topic,
        -length({{ topic }}) as by_length,
        case when {{ consumer_group }} = '*' then 1 else 0 end as by_group,
        {{ topic }} as by_name
    )
{%- endmacro %}
