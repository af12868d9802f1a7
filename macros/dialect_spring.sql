{#- Spring Kafka's DeadLetterPublishingRecoverer. Coordinates are appended on every hop (first = origin, last = the hop that failed now);
    numbers are big-endian, 4 and 8 bytes; the exception named is nearly always the listener's wrapper, so the cause is read where there is
    one. It states no time of failure. -#}
{% macro dialect_spring(headers) %}
    {%- set hops = {} -%}
    {%- for which in ['first', 'last'] -%}
        {%- do hops.update({which: {
            'topic': kafka_topic(utf8_text(header_bytes(headers, 'kafka_dlt-original-topic', which))),
            'partition': 'cast(' ~ big_endian(header_bytes(headers, 'kafka_dlt-original-partition', which), 4, limits('partition')) ~ ' as int)',
            'offset': big_endian(header_bytes(headers, 'kafka_dlt-original-offset', which), 8, limits('offset')),
        }}) -%}
    {%- endfor -%}
    {%- set timestamp_ms = big_endian(header_bytes(headers, 'kafka_dlt-original-timestamp', 'first'), 8, limits('epoch_ms')) -%}
    {%- set consumer_group = utf8_text(header_bytes(headers, 'kafka_dlt-original-consumer-group')) -%}
    {{ return({
        'owns': ['kafka_dlt-'],
        'named': hops.last,
        'origin': hops.first,
        'origin_timestamp': 'timestamp_millis(' ~ timestamp_ms ~ ')',
        'consumer_group': consumer_group,
        'failed_at': 'cast(null as timestamp)',
        'error_class': 'coalesce(' ~ header_bytes(headers, 'kafka_dlt-exception-cause-fqcn')
            ~ ', ' ~ header_bytes(headers, 'kafka_dlt-exception-fqcn') ~ ')',
        'error_message': header_bytes(headers, 'kafka_dlt-exception-message'),
        'error_stack': header_bytes(headers, 'kafka_dlt-exception-stacktrace'),
        'readable': {
            'kafka_dlt-original-topic': hops.last.topic,
            'kafka_dlt-original-partition': hops.last.partition,
            'kafka_dlt-original-offset': hops.last.offset,
            'kafka_dlt-original-consumer-group': consumer_group,
        },
    }) }}
{% endmacro %}
