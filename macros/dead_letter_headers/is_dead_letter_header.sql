{#- Whether a header is one of those that a header profile has. -#}
{% macro is_dead_letter_header(profile, name) -%}
    coalesce(array_contains({{ headers_of_profile(profile) }}, {{ name }}), false)
{%- endmacro %}
