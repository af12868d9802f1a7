{#- Bytes as text: what isn't UTF-8 is replaced, and the text is cut to `max_bytes` bytes at the end of a character. -#}
{% macro utf8_repaired(bytes, max_bytes) -%}
    {{ utf8_cut('make_valid_utf8(cast(substring(' ~ bytes ~ ', 1, ' ~ max_bytes ~ ') as string))', max_bytes) }}
{%- endmacro %}
