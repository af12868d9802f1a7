{#- Whether a header is one of those that a header profile has (var header_profiles). -#}
{% macro is_dead_letter_header(profile, name) -%}
    coalesce(
        case split_part({{ profile }}, '+', 1)
            {%- for known, names in var('header_profiles').items() %}
            when '{{ known }}' then {{ name }} in ('{{ names | join("', '") }}')
            {%- endfor %}
        end,
        false
    )
{%- endmacro %}
