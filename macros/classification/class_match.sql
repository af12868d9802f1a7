{#- How a rule names the error classes that it means: `any` (null), a `pattern` that begins with ^, a `parent` and all that descends from it
    (name+), or `exact`. -#}
{% macro class_match(error_class) -%}
    case
        when {{ error_class }} is null then 'any'
        when startswith({{ error_class }}, '^') then 'pattern'
        when endswith({{ error_class }}, '+') then 'parent'
        else 'exact'
    end
{%- endmacro %}
