{#- The profile `streams`: the headers of Kafka Streams' dead letters (KIP-1034), all of them text. Without an error message, that header is null, as in
    Kafka Streams. -#}
{% macro dead_letter_headers_streams() -%}
    array_compact(array(
        {{ header('__streams.errors.exception', 'error_class') }},
        struct('__streams.errors.message' as key, cast(error_message as binary) as value),
        {{ header('__streams.errors.stacktrace', dead_letter_stack()) }},
        {{ header('__streams.errors.topic', 'original_topic') }},
        {{ header('__streams.errors.partition', 'original_partition') }},
        {{ header('__streams.errors.offset', 'original_offset') }}
    ))
{%- endmacro %}
