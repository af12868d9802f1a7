{#- The columns that the model `deliveries` makes its rows of, in one order, as a union goes by position. -#}
{% macro decided_columns() -%}
    {%- set columns = [
        'decisions_of_this_input', 'input_id', 'named_after', 'has_a_name', 'batch', 'recorded_at', 'source', 'message_id', 'life_cycle', 'attempt',
        'publish_attempt', 'max_attempts', 'original_topic', 'original_partition', 'original_offset', 'original_timestamp', 'consumer_group',
        'report_topic', 'report_partition', 'report_offset', 'decision', 'reason', 'kind', 'due_at', 'topic', 'partition', 'breaker_key',
        'publish_charge', 'delay_ms', 'header_profile', 'privacy', 'prior_delivery', 'prior_due', 'failed_at', 'happened_at', 'first_failed_at',
        'error_class', 'error_message', 'error_stack', 'error_kind', 'rule', 'matched', 'passed_over', 'problems', 'policy', 'policy_text',
        'rules_hash', 'content_hash', 'key', 'value', 'headers', 'by_reference', 'payload_bytes', 'outbox_row', 'sequence', 'sequence_place',
        'sequence_epoch', 'payload_delivery', 'payload_due',
    ] -%}
    {{ columns | join(', ') }}
{%- endmacro %}
