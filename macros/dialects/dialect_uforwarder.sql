{#- The dialect of uForwarder's retry and dead letter topics. The place of the original record is in the record's key, a Protocol Buffers message that
    intake unpacks into headers (orchestration/loop/packed_keys.py), for sources that name this dialect: no header of the record itself shows it. -#}
{% macro dialect_uforwarder() %}
    {{ return({
        'owns': ['uforwarder-*'],
        'recognised_by': [['uforwarder-topic']],
        'fields': {
            'named_topic': ['uforwarder-topic'],
            'named_partition': ['uforwarder-partition'],
            'named_offset': ['uforwarder-offset'],
            'origin_topic': ['uforwarder-topic'],
            'origin_partition': ['uforwarder-partition'],
            'origin_offset': ['uforwarder-offset'],
            'origin_timestamp': ['uforwarder-timestamp'],
            'attempts': ['uforwarder-retry-count'],
        },
    }) }}
{% endmacro %}
