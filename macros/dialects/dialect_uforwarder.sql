{#- The dialect of uForwarder's retry and dead letter topics: the key is a Protocol Buffers message with the place of the original record, and its key. -#}
{% macro dialect_uforwarder() %}
    {{ return({
        'owns': [],
        'recognised_by': [],
        'fields': {
            'named_topic': [''],
            'named_partition': [''],
            'named_offset': [''],
            'origin_topic': [''],
            'origin_partition': [''],
            'origin_offset': [''],
            'attempts': [''],
        },
        'paths': {
            'named_topic': '#2',
            'named_partition': '#3',
            'named_offset': '#4',
            'origin_topic': '#2',
            'origin_partition': '#3',
            'origin_offset': '#4',
            'attempts': '#1',
        },
        'key_field': 6,
    }) }}
{% endmacro %}
