{#- A number of a report, from 0 to `greatest`, decoded as its encoding says; null for anything else.

    found: what dialect_field returns. -#}
{% macro dialect_number(found, greatest) -%}
    case {{ found }}.encoding
        when 'text' then {{ whole_number(utf8_text(found ~ '.bytes'), greatest) }}
        else {{ big_endian(found ~ '.bytes', found ~ '.encoding', greatest) }}
    end
{%- endmacro %}
