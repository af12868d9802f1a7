{#- A time of a report: as text, or as a big-endian number of milliseconds since 1970; null for anything else.

    found: what dialect_field returns. -#}
{% macro dialect_moment(found) -%}
    case {{ found }}.encoding
        when 'text' then {{ point_in_time(utf8_text(found ~ '.bytes')) }}
        else timestamp_millis({{ big_endian(found ~ '.bytes', found ~ '.encoding', limits('moment_ms')) }})
    end
{%- endmacro %}
