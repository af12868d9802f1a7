{#- The headers of a header profile: what its macro dead_letter_headers_<profile> says.

    profile (not SQL): the name, as in the var header_profiles. -#}
{% macro dead_letter_headers_of(profile) -%}
    {{ context['dead_letter_headers_' ~ profile | replace('-', '_')]() }}
{%- endmacro %}
