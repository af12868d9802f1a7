{#- Bytes as text for people: what isn't UTF-8 is replaced, what is longer than `max_bytes` is cut at a character's boundary. -#}
{% macro utf8_repaired(bytes, max_bytes) -%}
    {{ utf8_cut('make_valid_utf8(cast(substring(' ~ bytes ~ ', 1, ' ~ max_bytes ~ ') as string))', max_bytes) }}
{%- endmacro %}
