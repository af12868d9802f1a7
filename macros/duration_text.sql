{#- A number of milliseconds as a person writes it: 1s, 60s, 1500ms. -#}
{% macro duration_text(milliseconds) -%}
    case when {{ milliseconds }} % 1000 = 0 then concat({{ milliseconds }} div 1000, 's') else concat({{ milliseconds }}, 'ms') end
{%- endmacro %}
