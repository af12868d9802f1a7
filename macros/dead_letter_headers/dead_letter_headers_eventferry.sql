{#- The profile `eventferry`: the headers of eventferry's dead letters, all of them text. The id of the message is redrive's. -#}
{% macro dead_letter_headers_eventferry() -%}
    array_compact(array(
        {{ dlq_headers() }},
        {{ header('original-topic', 'original_topic') }},
        {{ header('dlq-original-message-id', 'message_id') }}
    ))
{%- endmacro %}
