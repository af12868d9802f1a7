{#- The profile `spring-retry`: the headers of a dead letter of Spring Kafka's @RetryableTopic. The number of attempts is that of the next one; the time of
    the original record has as few bytes as it needs. -#}
{% macro dead_letter_headers_spring_retry() -%}
    array_compact(array(
        {{ spring_headers('kafka_') }},
        {{ header('retry_topic-attempts', big_endian_bytes('attempt + 1', 4), as_text=false) }},
        {{ header('retry_topic-original-timestamp', big_endian_shortest('unix_millis(original_timestamp)'), as_text=false) }}
    ))
{%- endmacro %}
