{#- The dialect of Spring Kafka's @RetryableTopic: records of its retry topics, and of its dead letter topic. Coordinates are appended at each hop, the
    headers of retries too. The number of attempts is that of the next one: 4 bytes, in older versions one. Times of retries have as few bytes as they
    need. -#}
{% macro dialect_spring_retry() %}
    {{ return({
        'owns': ['kafka_original-*', 'kafka_exception-*', 'retry_topic-*', 'kafka_dlt-original-consumer-group'],
        'recognised_by': [['retry_topic-attempts'], ['kafka_original-topic', 'kafka_exception-fqcn']],
        'fields': {
            'named_topic': ['kafka_original-topic'],
            'named_partition': ['kafka_original-partition'],
            'named_offset': ['kafka_original-offset'],
            'origin_topic': ['kafka_original-topic'],
            'origin_partition': ['kafka_original-partition'],
            'origin_offset': ['kafka_original-offset'],
            'origin_timestamp': ['retry_topic-original-timestamp'],
            'consumer_group': ['kafka_dlt-original-consumer-group'],
            'attempts': ['retry_topic-attempts'],
            'due': ['retry_topic-backoff-timestamp'],
            'error_wrapper': ['kafka_exception-fqcn'],
            'error_class': ['kafka_exception-cause-fqcn', 'kafka_exception-fqcn'],
            'error_message': ['kafka_exception-message'],
            'error_stack': ['kafka_exception-stacktrace'],
        },
        'encodings': {
            'named_partition': 'int32',
            'named_offset': 'int64',
            'origin_partition': 'int32',
            'origin_offset': 'int64',
            'origin_timestamp': 'shortest',
            'attempts': 'byte_or_int32',
            'due': 'shortest',
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset'],
        'attempts_ahead': 1,
    }) }}
{% endmacro %}
