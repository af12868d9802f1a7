{#- The dialect of Spring Kafka's DeadLetterPublishingRecoverer. Each failure appends its coordinates: the first are those of the original record, the
    last those of the record that failed now. Numbers are big-endian, of 4 and 8 bytes. The exception is nearly always the listener's wrapper, so the
    cause is preferred if there is one. The time of failure is not stated. -#}
{% macro dialect_spring() %}
    {{ return({
        'owns': ['kafka_dlt-*'],
        'recognised_by': [['kafka_dlt-original-topic'], ['kafka_dlt-exception-fqcn']],
        'fields': {
            'named_topic': ['kafka_dlt-original-topic'],
            'named_partition': ['kafka_dlt-original-partition'],
            'named_offset': ['kafka_dlt-original-offset'],
            'origin_topic': ['kafka_dlt-original-topic'],
            'origin_partition': ['kafka_dlt-original-partition'],
            'origin_offset': ['kafka_dlt-original-offset'],
            'origin_timestamp': ['kafka_dlt-original-timestamp'],
            'consumer_group': ['kafka_dlt-original-consumer-group'],
            'error_wrapper': ['kafka_dlt-exception-fqcn'],
            'error_class': ['kafka_dlt-exception-cause-fqcn', 'kafka_dlt-exception-fqcn'],
            'error_message': ['kafka_dlt-exception-message'],
            'error_stack': ['kafka_dlt-exception-stacktrace'],
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
