{#- The names of the headers that a header profile has (var header_profiles); an empty array if there is no such profile. -#}
{% macro headers_of_profile(profile) -%}
    case split_part({{ profile }}, '+', 1)
        {%- for known, names in var('header_profiles').items() %}
        when '{{ known }}' then array('{{ names | join("', '") }}')
        {%- endfor %}
        else array()
    end
{%- endmacro %}
