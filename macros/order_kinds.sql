{#- What is asked of one delivery of ours, by the loop, and written into `events` like everything that is decided: by kind, and what it asks. -#}
{% macro order_kinds() -%}
    ('release', 'probe')
{%- endmacro %}
