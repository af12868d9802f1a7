{#- The dialect of Kafka Connect's dead letter topics, with context headers enabled. A second pass appends. The connector's name stands for the group. -#}
{% macro dialect_connect() %}
    {{ return({
        'owns': ['__connect.errors.*'],
        'recognised_by': [['__connect.errors.topic'], ['__connect.errors.exception.class.name']],
        'fields': {
            'named_topic': ['__connect.errors.topic'],
            'named_partition': ['__connect.errors.partition'],
            'named_offset': ['__connect.errors.offset'],
            'origin_topic': ['__connect.errors.topic'],
            'origin_partition': ['__connect.errors.partition'],
            'origin_offset': ['__connect.errors.offset'],
            'consumer_group': ['__connect.errors.connector.name'],
            'stage': ['__connect.errors.stage'],
            'error_class': ['__connect.errors.exception.class.name'],
            'error_message': ['__connect.errors.exception.message'],
            'error_stack': ['__connect.errors.exception.stacktrace'],
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset'],
        'copies_timestamp': true,
    }) }}
{% endmacro %}
