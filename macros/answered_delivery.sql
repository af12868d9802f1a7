{#- What a decision needs to know about the delivery that its input answers, as one struct. -#}
{% macro answered_delivery(delivery) -%}
    struct(
        {%- for column in [
            'delivery_id', 'due_at', 'kind', 'topic', 'message_id', 'life', 'attempt', 'publish_attempt', 'source', 'original_topic',
            'original_partition', 'original_offset', 'original_timestamp', 'consumer_group', 'content_hash', 'headers', 'failed_at', 'first_failed_at',
            'error_class', 'error_message', 'error_stack', 'error_kind', 'rule', 'matched', 'header_profile', 'privacy'
        ] %}
        {{ delivery }}.{{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    )
{%- endmacro %}
