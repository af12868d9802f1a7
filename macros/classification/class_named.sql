{#- The class that a rule names, without the `+` for its descendants; null for a pattern, and for a rule without a class. -#}
{% macro class_named(error_class) -%}
    rtrim('+', case when not startswith({{ error_class }}, '^') then {{ error_class }} end)
{%- endmacro %}
