{#- A header's value, as bytes; null if there is none.

    name (not SQL): the header's name. which (not SQL): of several of that name, the `last` or the `first`. -#}
{% macro header_bytes(headers, name, which='last') -%}
    try_element_at(filter({{ headers }}, h -> h.key = {{ sql_text(name) }}), {{ -1 if which == 'last' else 1 }}).value
{%- endmacro %}
