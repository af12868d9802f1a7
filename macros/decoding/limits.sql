{#- The greatest values that a Kafka coordinate can have. moment_ms is for times, and ends with 2099: any clock and zone of any language can
    tell them. delay_ms is 365 days, the longest duration that the seeds can name.

    name (not SQL): `partition`, `offset` or `moment_ms` (the end of 2099). -#}
{% macro limits(name) -%}
    {{ {'partition': 2147483647, 'offset': 9223372036854775806, 'moment_ms': 4102444799999, 'delay_ms': 31536000000}[name] }}
{%- endmacro %}
