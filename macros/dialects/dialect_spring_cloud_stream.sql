{#- The dialect of Spring Cloud Stream's Kafka binder. Programs that write the same names with decimal text are of the dialect x-original-text: which
    one it is can't be seen in the names. -#}
{% macro dialect_spring_cloud_stream() %}
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
        'encodings': {
            'named_partition': 'int32',
            'named_offset': 'int64',
            'origin_partition': 'int32',
            'origin_offset': 'int64',
            'origin_timestamp': 'int64',
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset', 'origin_timestamp'],
    }) }}
{% endmacro %}
