{#- The word for no dead letter topic in the seeds: a message that dies is parked, that is, kept in the tables, and nothing is sent. -#}
{% macro no_topic() -%}
    none
{%- endmacro %}
