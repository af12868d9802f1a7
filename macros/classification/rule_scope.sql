{#- A sort key for how narrow a rule's scope is: topic and group as with routes, then a source's name before *. Smaller is narrower. -#}
{% macro rule_scope(source, topic, consumer_group) -%}
    struct(
        {{ route_rank(topic, consumer_group) }} as by_route,
        case when {{ source }} = '*' then 1 else 0 end as by_source
    )
{%- endmacro %}
