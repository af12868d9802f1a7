{#- How a rule's condition on the error class is to be read: `any` (null), `pattern` (a regular expression, begins with ^), `parent` (`name+`: the
    class and its descendants), or `exact`. -#}
{% macro class_match(error_class) -%}
    case
        when {{ error_class }} is null then 'any'
        when startswith({{ error_class }}, '^') then 'pattern'
        when endswith({{ error_class }}, '+') then 'parent'
        else 'exact'
    end
{%- endmacro %}
