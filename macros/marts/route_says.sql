{#- What the most specific of the routes that match says in a column; null where none says anything.

    routes: those that match, the most specific first. column (not SQL): its name. -#}
{% macro route_says(routes, column) -%}
    try_element_at(filter({{ routes }}, r -> r.{{ column }} <> ''), 1).{{ column }}
{%- endmacro %}
