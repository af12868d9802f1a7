{#- A value, provided that a condition holds; else the statement stops with a message, before it has written anything. -#}
{% macro stop_unless(condition, value, message) -%}
    case when {{ condition }} then {{ value }} else raise_error({{ message }}) end
{%- endmacro %}
