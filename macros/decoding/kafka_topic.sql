{#- The text if it is a legal name of a Kafka topic, else null: 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither `.` nor `..`.
    Names that come from reports are written into a statement only if they have passed this. -#}
{% macro kafka_topic(text) -%}
    case when {{ text }} rlike '^[a-zA-Z0-9._-]{1,249}\\z' and {{ text }} not in ('.', '..') then {{ text }} end
{%- endmacro %}
