{#- The whole number that a text has in decimal digits, from 0 to `greatest`; null for anything else. The form is checked before the conversion, so
    that no header, however long, can make the statement fail. -#}
{% macro whole_number(text, greatest) -%}
    case
        when {{ text }} rlike '^[0-9]{1,18}\\z' and try_cast({{ text }} as bigint) <= {{ greatest }} then try_cast({{ text }} as bigint)
    end
{%- endmacro %}
