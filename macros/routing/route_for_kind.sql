{#- The first route for a kind of error, or for any kind; null if there is none.

    routes: an array of the routes that match topic and group, as routes_of returns it. -#}
{% macro route_for_kind(routes, error_kind) -%}
    try_element_at(filter({{ routes }}, r -> r.error_kind = '*' or r.error_kind <=> {{ error_kind }}), 1)
{%- endmacro %}
