{#- The greatest value that is accepted.

    name (not SQL): `partition` and `offset`, Kafka's own limits; `due_ms`, of a due time that redrive itself has computed, the end of the year 9999 in
    epoch milliseconds, the last that Python can represent; `moment_ms`, of any other time, the end of 2099, which clocks of all languages can represent in
    every time zone; `delay_ms`, 365 days, the longest duration that the seeds can have; `attempts`, more than which no report is
    believed. -#}
{% macro limits(name) -%}
    {{ {
        'partition': 2147483647, 'offset': 9223372036854775806, 'due_ms': 253402300799999, 'moment_ms': 4102444799999, 'delay_ms': 31536000000, 'attempts': 1000
    }[name] }}
{%- endmacro %}
