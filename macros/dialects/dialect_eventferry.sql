{#- The dialect of eventferry's dead letters. They have no place in an original topic: a row of a table is the original. -#}
{% macro dialect_eventferry() %}
    {{ return({
        'owns': ['dlq-*', 'original-topic'],
        'recognised_by': [['dlq-reason'], ['dlq-original-topic']],
        'fields': {
            'named_topic': ['dlq-original-topic', 'original-topic'],
            'origin_topic': ['dlq-original-topic', 'original-topic'],
            'failed_at': ['dlq-failed-at'],
            'attempts': ['dlq-attempts'],
            'error_class': ['dlq-error-class'],
            'error_message': ['dlq-reason'],
            'error_stack': ['dlq-stack'],
        },
    }) }}
{% endmacro %}
