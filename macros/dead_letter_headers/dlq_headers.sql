{#- The headers that the profiles `dlq` and `eventferry` have in common, for the inside of an array. -#}
{% macro dlq_headers() -%}
    {{ header('dlq-reason', dead_letter_reason()) }},
    {{ header('dlq-error-class', 'error_class') }},
    {{ header('dlq-original-topic', 'original_topic') }},
    {{ header('dlq-failed-at', iso_time('failed_at')) }},
    {{ header('dlq-attempts', 'attempt') }},
    {{ header('dlq-stack', dead_letter_stack()) }}
{%- endmacro %}
