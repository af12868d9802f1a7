{#- The profile `karafka`: the headers of Karafka's dead letters since 2.5, all of them text. It has no place for the error. -#}
{% macro dead_letter_headers_karafka() -%}
    array_compact(array(
        {{ header('source_topic', 'original_topic') }},
        {{ header('source_partition', 'original_partition') }},
        {{ header('source_offset', 'original_offset') }},
        {{ header('source_consumer_group', 'consumer_group') }},
        {{ header('source_attempts', 'attempt') }}
    ))
{%- endmacro %}
