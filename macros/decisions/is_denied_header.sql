{#- Whether a privacy denies a header. Names are compared without regard to case. If there is an expression, a name of more than 1024 bytes is denied
    without trying it, as a match could take long.

    privacy: a struct of `privacy_read`, or null. -#}
{% macro is_denied_header(name, privacy) -%}
    coalesce(
        exists({{ privacy }}.denied_headers, denied -> case
            when startswith(denied, '^') then octet_length({{ name }}) > 1024 or {{ name }} rlike concat('(?i)', denied)
            else lower({{ name }}) = lower(denied)
        end),
        false
    )
{%- endmacro %}
