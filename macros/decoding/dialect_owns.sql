{#- Whether a header belongs to the dialect of its source, or to redrive itself, and so isn't part of the message that is sent again. -#}
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
