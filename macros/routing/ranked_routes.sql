{#- A query for routes, with the columns to sort them by in front: the smallest of those that match a topic, group and kind is the one that counts.

    routes: a relation like the seed. columns (a list): its other columns that are wanted. -#}
{% macro ranked_routes(routes, columns) -%}
    select
        {{ route_rank('topic', 'consumer_group') }} as rank,
        case when error_kind = '*' then 1 else 0 end as by_kind,
        {{ regular_expression('topic') }} as topic,
        consumer_group,
        error_kind,
        {%- for column in columns %}
        {{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from {{ routes }}
{%- endmacro %}
