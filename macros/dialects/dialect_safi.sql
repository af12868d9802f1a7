{#- The dialect of a bank's dead letters: one header with a JSON object. It does not say where in its topic the record was. -#}
{% macro dialect_safi() %}
    {{ return({
        'owns': ['x-dlq-metadata'],
        'recognised_by': [['x-dlq-metadata']],
        'fields': {
            'named_topic': ['x-dlq-metadata'],
            'origin_topic': ['x-dlq-metadata'],
            'origin_timestamp': ['x-dlq-metadata'],
            'consumer_group': ['x-dlq-metadata'],
            'error_message': ['x-dlq-metadata'],
            'message_headers': ['x-dlq-metadata'],
        },
        'paths': {
            'named_topic': '$.original_topic',
            'origin_topic': '$.original_topic',
            'origin_timestamp': '$.original_timestamp',
            'consumer_group': '$.original_consumer_group',
            'error_message': '$.error_info',
            'message_headers': '$.original_headers',
        },
    }) }}
{% endmacro %}
