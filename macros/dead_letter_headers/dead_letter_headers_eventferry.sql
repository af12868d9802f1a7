{#- The profile `eventferry`: the headers of eventferry's dead letters, all of them text. The id of the message is redrive's. -#}
{% macro dead_letter_headers_eventferry() -%}
    array_compact(array(
        {{ header('dlq-reason', utf8_cut('coalesce(error_message, reason)', 1024)) }},
        {{ header('dlq-error-class', 'error_class') }},
        {{ header('dlq-original-topic', 'original_topic') }},
        {{ header('dlq-failed-at', iso_time('failed_at')) }},
        {{ header('dlq-attempts', 'attempt') }},
        {{ header('dlq-stack', dead_letter_stack()) }},
        {{ header('original-topic', 'original_topic') }},
        {{ header('dlq-original-message-id', 'message_id') }}
    ))
{%- endmacro %}
