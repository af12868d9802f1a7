{#- A time as ISO 8601 in UTC, with milliseconds. -#}
{% macro iso_time(timestamp) -%}
    date_format({{ timestamp }}, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
{%- endmacro %}
