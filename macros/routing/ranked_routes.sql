{#- Routes with what they are sorted by in front: of those that match a topic and a group, the smallest is the route.

    routes: a relation like the seed. columns (a list): what else of it is wanted. -#}
{% macro ranked_routes(routes, columns) -%}
    select
        {{ route_rank('topic', 'consumer_group') }} as rank,
        case when error_kind = '*' then 1 else 0 end as by_kind,
        topic,
        consumer_group,
        error_kind,
        {%- for column in columns %}
        {{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from {{ routes }}
{%- endmacro %}
