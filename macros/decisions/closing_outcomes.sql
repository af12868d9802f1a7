{#- The outcomes after which a delivery is never sent again. -#}
{% macro closing_outcomes() -%}
    ('delivered', 'failed', 'held', 'cancelled')
{%- endmacro %}
