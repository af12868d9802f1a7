{#- The kind of error that a word stands for: redrive's own words, and those of other vocabularies. Null for anything else. -#}
{% macro error_kind(text) -%}
    case lower(trim({{ text }}))
        {%- for kind, words in var('error_kinds').items() %}
        {%- for word in [kind] + words %}
        when '{{ word | lower }}' then '{{ kind }}'
        {%- endfor %}
        {%- endfor %}
    end
{%- endmacro %}
