{#- Bytes as text; null where they aren't UTF-8. -#}
{% macro utf8_text(bytes) -%}
    try_validate_utf8(cast({{ bytes }} as string))
{%- endmacro %}
