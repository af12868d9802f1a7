{#- redrive's own dialect: what a consumer writes that has no framework to do it. Numbers are decimal text; times are epoch milliseconds or
    ISO 8601. Reporters append headers, so the last of each name is read: a message that failed again carries those of its retry as well.

    The dictionary: `owns` (prefixes of its headers), `numbers` (`decimal` or `big_endian`), `fields` (headers by field, the best first),
    `read_first` (fields of which the first header counts, not the last). -#}
{% macro dialect_redrive() %}
    {{ return({
        'owns': ['redrive-'],
        'numbers': 'decimal',
        'fields': {
            'named_topic': ['redrive-original-topic'],
            'named_partition': ['redrive-original-partition'],
            'named_offset': ['redrive-original-offset'],
            'origin_topic': ['redrive-original-topic'],
            'origin_partition': ['redrive-original-partition'],
            'origin_offset': ['redrive-original-offset'],
            'origin_timestamp': ['redrive-original-timestamp'],
            'consumer_group': ['redrive-consumer-group'],
            'failed_at': ['redrive-failed-at'],
            'error_wrapper': [],
            'error_class': ['redrive-error-class'],
            'error_message': ['redrive-error-message'],
            'error_stack': ['redrive-error-stack'],
            'error_code': ['redrive-error-code'],
            'error_kind': ['redrive-error-kind'],
        },
        'read_first': [],
    }) }}
{% endmacro %}
