{#- The greatest values that a Kafka coordinate can have. moment_ms is for times, and ends with 2099: any clock and zone of any language can
    tell them. -#}
{% macro limits(name) -%}
    {{ {'partition': 2147483647, 'offset': 9223372036854775806, 'moment_ms': 4102444799999}[name] }}
{%- endmacro %}
