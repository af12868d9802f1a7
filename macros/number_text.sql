{#- A number as a person writes it: 2 for 2.0, 0.3 as it is. -#}
{% macro number_text(number) -%}
    regexp_replace(cast({{ number }} as string), '[.]0$', '')
{%- endmacro %}
