{#- A value as a SQL text literal, with quotes and backslashes escaped. -#}
{% macro sql_text(value) -%}
    '{{ value | string | replace("\\", "\\\\") | replace("'", "\\'") }}'
{%- endmacro %}
