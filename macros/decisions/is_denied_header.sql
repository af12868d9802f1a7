{#- Whether a header is one that a privacy denies. Names are compared whatever their case. An expression is not tried on a name of more than
    1024 bytes, which would cost much: it is denied.

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
