{#- A stack trace as text, from the bytes in a report: what isn't UTF-8 is replaced, what is too long is cut. Null if there are only blanks. The array
    of one element gives the text a name: it is a long expression, which stack_cut repeats. -#}
{% macro stack_text(bytes) -%}
    {%- set most = env_var('REDRIVE_ERROR_STACK_BYTES', '8192') | int -%}
    try_element_at(
        transform(
            array(make_valid_utf8(cast(substring({{ bytes }}, 1, {{ most + 1 }}) as string))),
            stack -> case when stack rlike '\\S' then {{ stack_cut('stack') }} end
        ),
        1
    )
{%- endmacro %}
