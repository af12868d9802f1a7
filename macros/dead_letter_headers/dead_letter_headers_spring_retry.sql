{#- The profile `spring-retry`: the headers of a dead letter of Spring Kafka's @RetryableTopic. Coordinates are big-endian; the number of attempts is that
    of the next one; the time of the original record has as few bytes as it needs. Both headers for classes name the error itself. -#}
{% macro dead_letter_headers_spring_retry() -%}
    array_compact(array(
        {{ header('kafka_exception-fqcn', 'error_class') }},
        {{ header('kafka_exception-cause-fqcn', 'error_class') }},
        {{ header('kafka_exception-message', 'error_message') }},
        {{ header('kafka_exception-stacktrace', dead_letter_stack()) }},
        {{ header('kafka_original-topic', 'original_topic') }},
        {{ header('kafka_original-partition', big_endian_bytes('original_partition', 4), as_text=false) }},
        {{ header('kafka_original-offset', big_endian_bytes('original_offset', 8), as_text=false) }},
        {{ header('kafka_original-timestamp', big_endian_bytes('coalesce(unix_millis(original_timestamp), -1)', 8), as_text=false) }},
        {{ header('kafka_original-timestamp-type', "case when original_timestamp is null then 'NoTimestampType' end") }},
        {{ header('kafka_dlt-original-consumer-group', 'consumer_group') }},
        {{ header('retry_topic-attempts', big_endian_bytes('attempt + 1', 4), as_text=false) }},
        {{ header('retry_topic-original-timestamp', big_endian_shortest('unix_millis(original_timestamp)'), as_text=false) }}
    ))
{%- endmacro %}
