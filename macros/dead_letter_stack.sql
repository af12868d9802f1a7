{#- The stack trace that goes along with a dead letter: where its profile ends with `+stack`, at most 8192 bytes. Else null. -#}
{% macro dead_letter_stack() -%}
    case when endswith(header_profile, '+stack') then {{ utf8_cut('error_stack', 8192) }} end
{%- endmacro %}
