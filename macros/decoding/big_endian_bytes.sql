{#- A whole number as big-endian signed bytes, 4 or 8 of them; null for null. What `big_endian` reads. -#}
{% macro big_endian_bytes(number, width) -%}
    unhex(right(lpad(hex(cast({{ number }} as bigint)), 16, '0'), {{ 2 * width }}))
{%- endmacro %}
