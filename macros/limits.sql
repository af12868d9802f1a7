{#- The greatest values that a Kafka coordinate can have; epoch_ms ends with the year 9999. -#}
{% macro limits(name) -%}
    {{ {'partition': 2147483647, 'offset': 9223372036854775806, 'epoch_ms': 253402300799999}[name] }}
{%- endmacro %}
