{#- Whether a header belongs to the dialect of the report or to redrive, and not to the message: such headers are not sent again. -#}
{% macro dialect_owns(dialect_column, header) -%}
    (
        startswith({{ header }}, 'redrive-')
        {%- for name in var('dialects') %}
        {%- for prefix in dialect(name).owns if prefix != 'redrive-' %}
        or ({{ dialect_column }} = '{{ name }}' and startswith({{ header }}, '{{ prefix }}'))
        {%- endfor %}
        {%- endfor %}
    )
{%- endmacro %}
