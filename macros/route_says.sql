{#- What the most specific of the routes that match says in a column; null where none says anything. -#}
{% macro route_says(routes, column) -%}
    try_element_at(filter({{ routes }}, r -> r.{{ column }} <> ''), 1).{{ column }}
{%- endmacro %}
