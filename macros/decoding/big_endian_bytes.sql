{#- A whole number as a big-endian signed integer of 4 or 8 bytes, as `big_endian` reads it; null for null. -#}
{% macro big_endian_bytes(number, width) -%}
    unhex(right(lpad(hex(cast({{ number }} as bigint)), 16, '0'), {{ 2 * width }}))
{%- endmacro %}
