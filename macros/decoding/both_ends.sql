{#- Bytes as they are, if they are at most `most`; of longer ones, the first and the last `most` / 2 bytes, with a line break between
    them. -#}
{% macro both_ends(bytes, most) -%}
    if(
        length({{ bytes }}) <= {{ most }},
        {{ bytes }},
        concat(substring({{ bytes }}, 1, {{ most // 2 }}), X'0A', substring({{ bytes }}, -{{ most // 2 }}))
    )
{%- endmacro %}
