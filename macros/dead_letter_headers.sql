{#- The headers that a dead letter gets, after the message's own: why it died. Null for what is no dead letter. The names are
    `dead_letter_header_names`. -#}
{% macro dead_letter_headers() -%}
    case
        when kind = 'dead_letter' then array_compact(array(
            {{ header('dlq-reason', utf8_cut('coalesce(error_message, reason)', 1024)) }},
            {{ header('dlq-error-class', 'error_class') }},
            {{ header('dlq-original-topic', 'original_topic') }},
            {{ header('dlq-failed-at', iso_time('failed_at')) }},
            {{ header('dlq-attempts', 'attempt') }},
            {{ header('redrive-consumer-group', 'consumer_group') }}
        ))
    end
{%- endmacro %}
