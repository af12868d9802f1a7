{#- Whether a header is one that a privacy denies. Names are compared whatever their case. -#}
{% macro is_denied_header(name, privacy) -%}
    coalesce(
        exists({{ privacy }}.denied_headers, denied -> case
            when startswith(denied, '^') then {{ name }} rlike concat('(?i)', denied)
            else lower({{ name }}) = lower(denied)
        end),
        false
    )
{%- endmacro %}
