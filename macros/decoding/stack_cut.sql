{#- A stack trace of at most as many bytes of UTF-8 as are kept of one. One that is longer ends with a line that says so, within the same bound. -#}
{% macro stack_cut(text) -%}
    {%- set marker = '... cut' -%}
    {%- set most = env_var('REDRIVE_ERROR_STACK_BYTES', '8192') | int -%}
    case
        when octet_length({{ text }}) > {{ most }} then concat({{ utf8_cut(text, most - marker | length - 1) }}, '\n{{ marker }}')
        else {{ text }}
    end
{%- endmacro %}
