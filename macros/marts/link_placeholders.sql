{#- The placeholders of link templates, each with its SQL expression. Times are those of the failure, in ISO 8601 or epoch milliseconds; `from` and
    `to` are five minutes before and after it. -#}
{% macro link_placeholders() %}
    {%- set from = "failed_at - interval '5' minute" -%}
    {%- set to = "failed_at + interval '5' minute" -%}
    {{ return({
        'message_id': 'message_id',
        'topic': 'original_topic',
        'partition': 'original_partition',
        'offset': 'original_offset',
        'group': 'consumer_group',
        'class': 'error_class',
        'time': iso_time('failed_at'),
        'time_ms': 'unix_millis(failed_at)',
        'from': iso_time(from),
        'from_ms': 'unix_millis(' ~ from ~ ')',
        'to': iso_time(to),
        'to_ms': 'unix_millis(' ~ to ~ ')',
        'request_id': 'request_id',
        'process_id': 'process_id',
        'trace_id': 'trace_id',
    }) }}
{% endmacro %}
