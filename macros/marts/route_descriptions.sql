{#- The columns of `routes` that inform people and don't affect decisions. -#}
{% macro route_descriptions() %}
    {{ return(['owner', 'runbook', 'logs_url', 'trace_url', 'request_id', 'process_id', 'trace_id']) }}
{% endmacro %}
