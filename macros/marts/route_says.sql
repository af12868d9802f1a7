{#- The value of a column in the most specific matching route in which it is not empty; null if it is empty in all.

    routes: the routes that match, the most specific first. column (not SQL): name of the column. -#}
{% macro route_says(routes, column) -%}
    try_element_at(filter({{ routes }}, r -> r.{{ column }} <> ''), 1).{{ column }}
{%- endmacro %}
