{#- The dialect of the dead letter topics of share groups (KIP-1191). Key and value are there only if the group is set to copy them; else the original
    record has them. -#}
{% macro dialect_share_group() %}
    {{ return({
        'owns': ['__dlq.errors.*'],
        'recognised_by': [['__dlq.errors.topic']],
        'fields': {
            'named_topic': ['__dlq.errors.topic'],
            'named_partition': ['__dlq.errors.partition'],
            'named_offset': ['__dlq.errors.offset'],
            'origin_topic': ['__dlq.errors.topic'],
            'origin_partition': ['__dlq.errors.partition'],
            'origin_offset': ['__dlq.errors.offset'],
            'consumer_group': ['__dlq.errors.group'],
            'attempts': ['__dlq.errors.delivery.count'],
            'error_message': ['__dlq.errors.message'],
        },
        'read_first': ['origin_topic', 'origin_partition', 'origin_offset'],
        'refers_when_empty': true,
    }) }}
{% endmacro %}
