{#- Whether a header is one of those in dead_letter_header_names for a header profile. -#}
{% macro is_dead_letter_header(profile, name) -%}
    coalesce(
        case split_part({{ profile }}, '+', 1)
            {%- for known, names in dead_letter_header_names().items() %}
            when '{{ known }}' then {{ name }} in ('{{ names | join("', '") }}')
            {%- endfor %}
        end,
        false
    )
{%- endmacro %}
