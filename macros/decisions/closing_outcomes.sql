{#- The outcomes that close a delivery, after which it is not sent again, as a SQL list. -#}
{% macro closing_outcomes() -%}
    ('delivered', 'failed', 'held', 'cancelled')
{%- endmacro %}
