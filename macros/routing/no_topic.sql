{#- What stands for a dead letter topic where there is none: a message that dies is parked, that is, kept in the tables, and nothing is sent. -#}
{% macro no_topic() -%}
    none
{%- endmacro %}
