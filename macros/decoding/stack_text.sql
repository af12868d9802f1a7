{#- A stack trace, from the bytes that a report has, as text: what isn't UTF-8 is replaced, what is too long is cut. Null where there is nothing
    but blanks: that is no stack trace. The text is named once, as it is a long expression. -#}
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
