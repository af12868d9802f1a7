{#- The greatest values that a Kafka coordinate can have; epoch_ms ends with the year 9999. moment_ms is for times that we wrote ourselves, and
    ends with 2099: any clock and zone of any language can tell them. -#}
{% macro limits(name) -%}
    {{ {'partition': 2147483647, 'offset': 9223372036854775806, 'epoch_ms': 253402300799999, 'moment_ms': 4102444799999}[name] }}
{%- endmacro %}
