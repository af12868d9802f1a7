{#- The names of Spring Cloud Stream's headers, with numbers as decimal text: a habit of programs without a framework. -#}
{% macro dialect_x_original_text() %}
    {{ return({
        'owns': ['x-original-*', 'x-exception-*'],
        'recognised_by': [['x-original-topic']],
        'fields': {
            'named_topic': ['x-original-topic'],
            'named_partition': ['x-original-partition'],
            'named_offset': ['x-original-offset'],
            'origin_topic': ['x-original-topic'],
            'origin_partition': ['x-original-partition'],
            'origin_offset': ['x-original-offset'],
            'origin_timestamp': ['x-original-timestamp'],
            'error_class': ['x-exception-fqcn'],
            'error_message': ['x-exception-message'],
            'error_stack': ['x-exception-stacktrace'],
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset', 'origin_timestamp'],
    }) }}
{% endmacro %}
