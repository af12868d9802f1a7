{#- The first 12 hexadecimal digits of a text's SHA-256. -#}
{% macro short_hash(text) -%}
    left(sha2({{ text }}, 256), 12)
{%- endmacro %}
