{#- A stack trace, cut at REDRIVE_ERROR_STACK_BYTES bytes of UTF-8. One that was cut ends with a line `... cut`, which is within the bound. -#}
{% macro stack_cut(text) -%}
    {%- set marker = '... cut' -%}
    {%- set most = env_var('REDRIVE_ERROR_STACK_BYTES', '8192') | int -%}
    case
        when octet_length({{ text }}) > {{ most }} then concat({{ utf8_cut(text, most - marker | length - 1) }}, '\n{{ marker }}')
        else {{ text }}
    end
{%- endmacro %}
