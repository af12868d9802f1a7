{#- A text, cut to at most `max_bytes` bytes of UTF-8 at the end of a character: a character has at most four bytes, so one of four cuts is valid. -#}
{% macro utf8_cut(text, max_bytes) -%}
    coalesce(
        {%- for cut in range(4) %}
        try_validate_utf8(cast(substring(cast({{ text }} as binary), 1, {{ max_bytes - cut }}) as string)){{ ',' if not loop.last }}
        {%- endfor %}
    )
{%- endmacro %}
