{#- The profile `dlq`: a header for each fact, all of them text. -#}
{% macro dead_letter_headers_dlq() -%}
    array_compact(array(
        {{ dlq_headers() }},
        {{ header('redrive-consumer-group', 'consumer_group') }}
    ))
{%- endmacro %}
