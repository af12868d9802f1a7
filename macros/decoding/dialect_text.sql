{#- The text of a field of a report; null if it is not UTF-8.

    found: what dialect_field returns. -#}
{% macro dialect_text(found) -%}
    case {{ found }}.encoding
        when 'last_in_list' then trim(substring_index({{ utf8_text(found ~ '.bytes') }}, ',', -1))
        else {{ utf8_text(found ~ '.bytes') }}
    end
{%- endmacro %}
