{#- The dialect of messages that pass through topics of fixed delays: the last topic of the route is the one that the message is for. -#}
{% macro dialect_delay_topics() %}
    {{ return({
        'owns': ['X_DELAY_ROUTE', 'X_DELAY_COUNTER', 'X_DELAY_REASON'],
        'recognised_by': [['X_DELAY_ROUTE']],
        'fields': {
            'named_topic': ['X_DELAY_ROUTE'],
            'origin_topic': ['X_DELAY_ROUTE'],
            'attempts': ['X_DELAY_COUNTER'],
            'error_message': ['X_DELAY_REASON'],
        },
        'encodings': {
            'named_topic': 'last_in_list',
            'origin_topic': 'last_in_list',
        },
    }) }}
{% endmacro %}
