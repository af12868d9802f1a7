{#- A short name for a longer one: 12 hexadecimal digits of its SHA-256. -#}
{% macro short_hash(text) -%}
    left(sha2({{ text }}, 256), 12)
{%- endmacro %}
