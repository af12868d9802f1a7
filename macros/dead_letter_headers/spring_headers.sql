{#- The headers that the profiles `spring` and `spring-retry` have in common, for the inside of an array; numbers big-endian. Both headers for classes
    name the error itself, as the listener's wrapper is not kept. The timestamp's type is written only if there is no timestamp (NoTimestampType): else it
    is unknown.

    prefix (not SQL): what their names begin with, except for that of the group, which is the same. -#}
{% macro spring_headers(prefix) -%}
    {{ header(prefix ~ 'exception-fqcn', 'error_class') }},
    {{ header(prefix ~ 'exception-cause-fqcn', 'error_class') }},
    {{ header(prefix ~ 'exception-message', 'error_message') }},
    {{ header(prefix ~ 'exception-stacktrace', dead_letter_stack()) }},
    {{ header(prefix ~ 'original-topic', 'original_topic') }},
    {{ header(prefix ~ 'original-partition', big_endian_bytes('original_partition', 4), as_text=false) }},
    {{ header(prefix ~ 'original-offset', big_endian_bytes('original_offset', 8), as_text=false) }},
    {{ header(prefix ~ 'original-timestamp', big_endian_bytes('coalesce(unix_millis(original_timestamp), -1)', 8), as_text=false) }},
    {{ header(prefix ~ 'original-timestamp-type', "case when original_timestamp is null then 'NoTimestampType' end") }},
    {{ header('kafka_dlt-original-consumer-group', 'consumer_group') }}
{%- endmacro %}
