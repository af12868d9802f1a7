{#- The profile `spring`: what Spring Kafka's DeadLetterPublishingRecoverer writes, numbers big-endian. The listener's wrapper is not kept, so
    that both headers for classes name the error itself. Of which type a timestamp is, nobody tells us; without one, Kafka says so. -#}
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
