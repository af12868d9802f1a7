{#- Whether a header belongs to the dialect of its source, or to redrive itself, and so isn't part of the message that is sent again. -#}
{% macro dialect_owns(dialect, header) -%}
    (
        startswith({{ header }}, 'redrive-')
        {%- for name in var('dialects') %}
        {%- for prefix in context['dialect_' ~ name]('headers').owns if prefix != 'redrive-' %}
        or ({{ dialect }} = '{{ name }}' and startswith({{ header }}, '{{ prefix }}'))
        {%- endfor %}
        {%- endfor %}
    )
{%- endmacro %}
