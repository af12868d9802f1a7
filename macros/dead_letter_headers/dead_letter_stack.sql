{#- The stack trace that goes along with a dead letter: where its profile ends with `+stack`, as much as is kept. Null where there is none: no
    header is written then. What was decided before the bound was lowered is cut here. -#}
{% macro dead_letter_stack() -%}
    case when endswith(header_profile, '+stack') then {{ stack_cut('error_stack') }} end
{%- endmacro %}
