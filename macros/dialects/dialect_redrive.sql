{#- redrive's own dialect, for consumers whose framework, if any, writes no reports. Numbers are decimal text; times are epoch milliseconds or ISO
    8601. The last header of each name counts: consumers append headers, and a message that failed again has those of its retry in front.

    The dictionary: `owns` (prefixes of its headers), `numbers` (`decimal` or `big_endian`), `fields` (for each field the headers that may have it,
    the preferred first), `read_first` (the fields of which the first header counts, not the last). -#}
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
