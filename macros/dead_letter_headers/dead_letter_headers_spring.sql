{#- The profile `spring`: the headers of Spring Kafka's DeadLetterPublishingRecoverer, numbers big-endian. Both headers for classes name the error
    itself, as the listener's wrapper is not kept. The timestamp's type is written only if there is no timestamp (NoTimestampType): else it is
    unknown. -#}
{% macro dead_letter_headers_spring() -%}
    array_compact(array(
        {{ header('kafka_dlt-exception-fqcn', 'error_class') }},
        {{ header('kafka_dlt-exception-cause-fqcn', 'error_class') }},
        {{ header('kafka_dlt-exception-message', 'error_message') }},
        {{ header('kafka_dlt-exception-stacktrace', dead_letter_stack()) }},
        {{ header('kafka_dlt-original-topic', 'original_topic') }},
        {{ header('kafka_dlt-original-partition', big_endian_bytes('original_partition', 4), as_text=false) }},
        {{ header('kafka_dlt-original-offset', big_endian_bytes('original_offset', 8), as_text=false) }},
        {{ header('kafka_dlt-original-timestamp', big_endian_bytes('coalesce(unix_millis(original_timestamp), -1)', 8), as_text=false) }},
        {{ header('kafka_dlt-original-timestamp-type', "case when original_timestamp is null then 'NoTimestampType' end") }},
        {{ header('kafka_dlt-original-consumer-group', 'consumer_group') }}
    ))
{%- endmacro %}
