{#- A due time in whole milliseconds, rounded up, so that nothing is sent early. The header redrive-due has no more digits: a delivery that was due at
    another time would not be the one that its record, an order or a report names. -#}
{% macro whole_ms(moment) -%}
    timestamp_millis((unix_micros({{ moment }}) + 999) div 1000)
{%- endmacro %}
