{#- The stack trace for a dead letter's headers, if its profile ends with `+stack`; else null, and no header is written. It is cut here again, as the
    bound may have been lowered since the decision. -#}
{% macro dead_letter_stack() -%}
    case when endswith(header_profile, '+stack') then {{ stack_cut('error_stack') }} end
{%- endmacro %}
