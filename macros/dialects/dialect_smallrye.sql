{#- The dialect of SmallRye Reactive Messaging (Quarkus): dead letter topics, and the topics of delayed retries, whose last dead letter has the headers of
    retries only. New headers stand before those that the record had: the first is the newest. -#}
{% macro dialect_smallrye() %}
    {{ return({
        'owns': ['dead-letter-*', 'delayed-retry-*'],
        'recognised_by': [['dead-letter-topic'], ['delayed-retry-topic']],
        'fields': {
            'named_topic': ['dead-letter-topic', 'delayed-retry-topic'],
            'named_partition': ['dead-letter-partition', 'delayed-retry-partition'],
            'named_offset': ['dead-letter-offset', 'delayed-retry-offset'],
            'origin_topic': ['dead-letter-topic', 'delayed-retry-topic'],
            'origin_partition': ['dead-letter-partition', 'delayed-retry-partition'],
            'origin_offset': ['dead-letter-offset', 'delayed-retry-offset'],
            'origin_timestamp': ['delayed-retry-original-timestamp'],
            'attempts': ['delayed-retry-count'],
            'error_wrapper': ['dead-letter-exception-class-name', 'delayed-retry-exception-class-name'],
            'error_class': ['dead-letter-cause-class-name', 'dead-letter-exception-class-name', 'delayed-retry-cause-class-name', 'delayed-retry-exception-class-name'],
            'error_message': ['dead-letter-cause', 'dead-letter-reason', 'delayed-retry-cause', 'delayed-retry-reason'],
        },
        'read_first': ['named_topic', 'named_partition', 'named_offset', 'attempts', 'error_wrapper', 'error_class', 'error_message'],
    }) }}
{% endmacro %}
