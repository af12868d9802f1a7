{#- A duration such as 500ms, 1s, 1.5m, 2h or 1d, in milliseconds. Null for any other text, and for more than 365 days.

    text: in lower case, without blanks. bare_ms (a number): for notations without units: the milliseconds that 1 in the text stands for. -#}
{% macro duration_ms(text, bare_ms=none) -%}
    case
        when {{ text }} rlike '^[0-9]{1,9}([.][0-9]{1,3})?{{ '(ms|s|m|h|d)' if bare_ms is none }}\\z' then
            nullif(least(round(
                try_cast(regexp_extract({{ text }}, '^[0-9.]+', 0) as decimal(12, 3))
                {%- if bare_ms is none %}
                * case regexp_extract({{ text }}, '[a-z]+\\z', 0)
                    when 'ms' then 1 when 's' then 1000 when 'm' then 60000 when 'h' then 3600000 when 'd' then 86400000
                end
                {%- else %}
                * {{ bare_ms }}
                {%- endif %}
            ), 31536000001), 31536000001)
    end
{%- endmacro %}
