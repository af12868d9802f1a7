{#- The profile `connect`: the context headers of Kafka Connect, all of them text. The consumer group stands for the connector; the stage is always
    `TASK_PUT`, as processing failed; task.id and class.name are left out, as they are unknown. Without an error message, that header
    is null, as in Connect. -#}
{% macro dead_letter_headers_connect() -%}
    array_compact(array(
        {{ header('__connect.errors.topic', 'original_topic') }},
        {{ header('__connect.errors.partition', 'original_partition') }},
        {{ header('__connect.errors.offset', 'original_offset') }},
        {{ header('__connect.errors.connector.name', 'consumer_group') }},
        {{ header('__connect.errors.stage', "'TASK_PUT'") }},
        {{ header('__connect.errors.exception.class.name', 'error_class') }},
        struct('__connect.errors.exception.message' as key, cast(error_message as binary) as value),
        {{ header('__connect.errors.exception.stacktrace', dead_letter_stack()) }}
    ))
{%- endmacro %}
