{#- A value, if a condition holds; else the statement fails with a message, and writes nothing. -#}
{% macro stop_unless(condition, value, message) -%}
    case when {{ condition }} then {{ value }} else raise_error({{ message }}) end
{%- endmacro %}
