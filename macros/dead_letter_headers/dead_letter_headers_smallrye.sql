{#- The profile `smallrye`: the headers of SmallRye's dead letters, all of them text. -#}
{% macro dead_letter_headers_smallrye() -%}
    array_compact(array(
        {{ header('dead-letter-exception-class-name', 'error_class') }},
        {{ header('dead-letter-reason', dead_letter_reason()) }},
        {{ header('dead-letter-topic', 'original_topic') }},
        {{ header('dead-letter-partition', 'original_partition') }},
        {{ header('dead-letter-offset', 'original_offset') }}
    ))
{%- endmacro %}
