{#- A time from the text of a report: epoch milliseconds in decimal digits, or ISO 8601 with a zone; in UTC, cut to milliseconds. Null for anything
    else, and for times outside 1970 to 2099. -#}
{% macro point_in_time(text) -%}
    case
        when {{ text }} rlike '^[0-9]{1,15}\\z' then timestamp_millis({{ whole_number(text, limits('moment_ms')) }})
        when {{ text }} rlike '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})\\z'
            then date_trunc('millisecond', {{ plausible_time('try_cast(' ~ text ~ ' as timestamp)') }})
    end
{%- endmacro %}
