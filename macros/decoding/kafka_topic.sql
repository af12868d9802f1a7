{#- A topic's name if it is a legal one, else null: 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither `.` nor `..`.
    Only names that passed here are ever written into a statement. -#}
{% macro kafka_topic(text) -%}
    case when {{ text }} rlike '^[a-zA-Z0-9._-]{1,249}\\z' and {{ text }} not in ('.', '..') then {{ text }} end
{%- endmacro %}
