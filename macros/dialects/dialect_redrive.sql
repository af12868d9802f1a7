{#- redrive's own dialect, for consumers whose framework, if any, writes no reports. Numbers are decimal text; times are epoch milliseconds or ISO
    8601. The last header of each name counts: consumers append headers, and a message that failed again has those of its retry in front.

    The dictionary: `owns` (names of headers that are not part of the message; with a * at its end, a name stands for all that begin so), `recognised_by`
    (lists of headers: a record that has all of one list is in this dialect), `fields` (for each field, one of var dialect_fields, the headers that may
    have it, the preferred first), `encodings` (of the fields that are not `text`, one of var dialect_encodings), `paths` (where in the header the field
    is, if its value is JSON: `$.name`), `read_first` (the fields of which the first header of a name counts, not the last), `attempts_ahead` (by how
    much the stated number of attempts is greater than that of the attempts made), and `copies_timestamp` (whether the record of a report has the timestamp
    of the failed record: it doesn't tell when that failed). -#}
{% macro dialect_redrive() %}
    {{ return({
        'owns': ['redrive-*'],
        'recognised_by': [['redrive-failed-at'], ['redrive-error-class'], ['redrive-error-message'], ['redrive-error-kind']],
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
            'error_class': ['redrive-error-class'],
            'error_message': ['redrive-error-message'],
            'error_stack': ['redrive-error-stack'],
            'error_code': ['redrive-error-code'],
            'error_kind': ['redrive-error-kind'],
        },
    }) }}
{% endmacro %}
