{#- The dialect of Karafka's dead letter topics: source_* since 2.5, original_* before, original-* in early 2.0. It states no error. -#}
{% macro dialect_karafka() %}
    {{ return({
        'owns': [
            'source_topic',
            'source_partition',
            'source_offset',
            'source_consumer_group',
            'source_attempts',
            'source_trace_id',
            'original_topic',
            'original_partition',
            'original_offset',
            'original_consumer_group',
            'original_attempts',
            'original_trace_id',
            'original-topic',
            'original-partition',
            'original-offset',
            'original-consumer-group',
            'original-attempts',
            'original-trace-id',
        ],
        'recognised_by': [['source_topic', 'source_offset'], ['original_topic', 'original_offset'], ['original-topic', 'original-offset']],
        'fields': {
            'named_topic': ['source_topic', 'original_topic', 'original-topic'],
            'named_partition': ['source_partition', 'original_partition', 'original-partition'],
            'named_offset': ['source_offset', 'original_offset', 'original-offset'],
            'origin_topic': ['source_topic', 'original_topic', 'original-topic'],
            'origin_partition': ['source_partition', 'original_partition', 'original-partition'],
            'origin_offset': ['source_offset', 'original_offset', 'original-offset'],
            'consumer_group': ['source_consumer_group', 'original_consumer_group', 'original-consumer-group'],
            'attempts': ['source_attempts', 'original_attempts', 'original-attempts'],
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset'],
    }) }}
{% endmacro %}
