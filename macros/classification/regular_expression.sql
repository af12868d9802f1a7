{#- A text of the seeds, unchanged. If it is a regular expression, it is tried on an empty text, so that an invalid one makes the loading of the rules
    fail, and not a decide run. -#}
{% macro regular_expression(text) -%}
    case
        when startswith({{ text }}, '^') then substring({{ text }}, 1 + length(regexp_replace('', {{ text }}, '')))
        else {{ text }}
    end
{%- endmacro %}
