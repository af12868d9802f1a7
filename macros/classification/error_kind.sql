{#- The kind of error that a word stands for: redrive's names of kinds, and those of other vocabularies (var error_kinds). Null for any other word.
    -#}
{% macro error_kind(text) -%}
    case lower(trim({{ text }}))
        {%- for kind, words in var('error_kinds').items() %}
        {%- for word in [kind] + words %}
        when '{{ word | lower }}' then '{{ kind }}'
        {%- endfor %}
        {%- endfor %}
    end
{%- endmacro %}
