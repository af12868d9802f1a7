{#- The columns that later steps need of the delivery that an input answers, as one struct. `kind` is `dead_letter` even if the message was adopted
    or parked, and `follower` for one that waits for an earlier message of its sequence.

    delivery: alias of `deliveries` in the query. -#}
{% macro answered_delivery(delivery) -%}
    struct(
        {%- for column in [
            'delivery_id', 'due_at', 'topic', 'message_id', 'life_cycle', 'attempt', 'publish_attempt', 'source', 'original_topic',
            'original_partition', 'original_offset', 'original_timestamp', 'consumer_group', 'content_hash', 'headers', 'failed_at', 'first_failed_at',
            'error_class', 'error_message', 'error_kind', 'rule', 'matched', 'header_profile', 'privacy', 'outbox_row', 'sequence', 'sequence_place',
            'sequence_epoch'
        ] %}
        {{ delivery }}.{{ column }},
        {%- endfor %}
        case
            when {{ is_dead_letter(delivery) }} then 'dead_letter'
            when {{ delivery }}.decision = 'follows' then 'follower'
            else {{ delivery }}.kind
        end as kind
    )
{%- endmacro %}
