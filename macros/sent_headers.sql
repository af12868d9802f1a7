{#- The headers of what is sent: the message's own, in their order, then ours. On a dead letter, one of ours replaces one of the same name
    from an earlier pass. -#}
{% macro sent_headers() -%}
    {%- set dead = "kind = 'dead_letter'" -%}
    concat(
        filter(
            coalesce(headers, cast(array() as array<struct<key: string, value: binary>>)),
            h -> not ({{ dead }} and h.key in ('dlq-reason', 'dlq-error-class', 'dlq-original-topic', 'dlq-failed-at', 'dlq-attempts'))
        ),
        array_compact(array(
            {{ header('redrive-delivery', 'delivery_id') }},
            {{ header('redrive-due', 'unix_millis(due_at)') }},
            -- the attempt that a retry starts; on a dead letter, the last one that was made
            {{ header('redrive-attempt', 'case when ' ~ dead ~ ' then attempt else attempt + 1 end') }},
            {{ header('redrive-message-id', 'message_id') }},
            {{ header('redrive-original-topic', 'original_topic') }},
            {{ header('redrive-original-partition', 'original_partition') }},
            {{ header('redrive-original-offset', 'original_offset') }},
            {{ header('redrive-original-timestamp', 'unix_millis(original_timestamp)') }},
            {{ header('dlq-reason', utf8_cut('coalesce(error_message, reason)', 1024), dead) }},
            {{ header('dlq-error-class', 'error_class', dead) }},
            {{ header('dlq-original-topic', 'original_topic', dead) }},
            {{ header('dlq-failed-at', "date_format(failed_at, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\")", dead) }},
            {{ header('dlq-attempts', 'attempt', dead) }},
            {{ header('redrive-consumer-group', 'consumer_group', dead) }}
        ))
    )
{%- endmacro %}
