{#- redrive's own dialect: what a consumer writes that has no framework to do it. Numbers are decimal text; times are epoch milliseconds or
    ISO 8601. Reporters append headers, so the last of each name is read: a message that failed again carries those of its retry as well. -#}
{% macro dialect_redrive(headers) %}
    {%- set text = {} -%}
    {%- for field in ['topic', 'partition', 'offset', 'timestamp'] -%}
        {%- do text.update({field: utf8_text(header_bytes(headers, 'redrive-original-' ~ field))}) -%}
    {%- endfor -%}
    {%- set failed_at = utf8_text(header_bytes(headers, 'redrive-failed-at')) -%}
    {%- set hop = {
        'topic': kafka_topic(text.topic),
        'partition': 'cast(' ~ whole_number(text.partition, limits('partition')) ~ ' as int)',
        'offset': whole_number(text.offset, limits('offset')),
    } -%}
    {{ return({
        'owns': ['redrive-'],
        'named': hop,
        'origin': hop,
        'origin_timestamp': point_in_time(text.timestamp),
        'consumer_group': utf8_text(header_bytes(headers, 'redrive-consumer-group')),
        'failed_at': point_in_time(failed_at),
        'error_class': header_bytes(headers, 'redrive-error-class'),
        'error_message': header_bytes(headers, 'redrive-error-message'),
        'error_stack': header_bytes(headers, 'redrive-error-stack'),
        'readable': {
            'redrive-original-topic': hop.topic,
            'redrive-original-partition': hop.partition,
            'redrive-original-offset': hop.offset,
            'redrive-original-timestamp': point_in_time(text.timestamp),
            'redrive-failed-at': point_in_time(failed_at),
            'redrive-consumer-group': utf8_text(header_bytes(headers, 'redrive-consumer-group')),
        },
    }) }}
{% endmacro %}
