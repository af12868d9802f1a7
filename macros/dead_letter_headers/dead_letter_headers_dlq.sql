{#- The profile `dlq`: a header for each fact, all of them text. -#}
{% macro dead_letter_headers_dlq() -%}
    array_compact(array(
        {{ header('dlq-reason', utf8_cut('coalesce(error_message, reason)', 1024)) }},
        {{ header('dlq-error-class', 'error_class') }},
        {{ header('dlq-original-topic', 'original_topic') }},
        {{ header('dlq-failed-at', iso_time('failed_at')) }},
        {{ header('dlq-attempts', 'attempt') }},
        {{ header('dlq-stack', dead_letter_stack()) }},
        {{ header('redrive-consumer-group', 'consumer_group') }}
    ))
{%- endmacro %}
