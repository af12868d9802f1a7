{#- The profile `spring`: the headers of Spring Kafka's DeadLetterPublishingRecoverer. -#}
{% macro dead_letter_headers_spring() -%}
    array_compact(array(
        {{ spring_headers('kafka_dlt-') }}
    ))
{%- endmacro %}
