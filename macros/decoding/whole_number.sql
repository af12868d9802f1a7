{#- The whole number that a text of 1 to 18 decimal digits stands for, from 0 to `greatest`; else null. The form is checked before the conversion, so
    that no header, however long, can make the statement fail. -#}
{% macro whole_number(text, greatest) -%}
    case
        when {{ text }} rlike '^[0-9]{1,18}\\z' and try_cast({{ text }} as bigint) <= {{ greatest }} then try_cast({{ text }} as bigint)
    end
{%- endmacro %}
