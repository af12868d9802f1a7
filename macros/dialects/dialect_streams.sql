{#- The dialect of Kafka Streams' dead letter topics (KIP-1034). -#}
{% macro dialect_streams() %}
    {{ return({
        'owns': ['__streams.errors.*'],
        'recognised_by': [['__streams.errors.topic'], ['__streams.errors.exception']],
        'fields': {
            'named_topic': ['__streams.errors.topic'],
            'named_partition': ['__streams.errors.partition'],
            'named_offset': ['__streams.errors.offset'],
            'origin_topic': ['__streams.errors.topic'],
            'origin_partition': ['__streams.errors.partition'],
            'origin_offset': ['__streams.errors.offset'],
            'error_class': ['__streams.errors.exception'],
            'error_message': ['__streams.errors.message'],
            'error_stack': ['__streams.errors.stacktrace'],
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset'],
        'copies_timestamp': true,
    }) }}
{% endmacro %}
