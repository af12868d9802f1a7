{#- The headers that a dead letter gets, as a SQL list: one from an earlier pass gives way to ours. -#}
{% macro dead_letter_header_names() -%}
    ('dlq-reason', 'dlq-error-class', 'dlq-original-topic', 'dlq-failed-at', 'dlq-attempts')
{%- endmacro %}
