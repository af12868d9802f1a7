{#- A whole number written in decimal digits, from 0 to `greatest`; null for anything else. Foreign text: its form is checked before it
    is converted, so that no header, however long, can stop the loop. -#}
{% macro whole_number(text, greatest) -%}
    case
        when {{ text }} rlike '^[0-9]{1,18}\\z' and try_cast({{ text }} as bigint) <= {{ greatest }} then try_cast({{ text }} as bigint)
    end
{%- endmacro %}
