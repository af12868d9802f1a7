{#- The kind of error that a word stands for: redrive's own words, and those of other vocabularies. Null for anything else. -#}
{% macro error_kind(word) -%}
    case lower(trim({{ word }}))
        {%- for kind, words in error_kinds().items() %}
        {%- for synonym in [kind] + words %}
        when '{{ synonym }}' then '{{ kind }}'
        {%- endfor %}
        {%- endfor %}
    end
{%- endmacro %}
