{#- A regular expression of the seeds, tried on nothing while the rules are put together: one that is none stops that, and no decide run. -#}
{% macro regular_expression(text) -%}
    case
        when startswith({{ text }}, '^') then substring({{ text }}, 1 + length(regexp_replace('', {{ text }}, '')))
        else {{ text }}
    end
{%- endmacro %}
