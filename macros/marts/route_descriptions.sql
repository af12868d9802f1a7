{#- The columns of `routes` that say something to people and change no decision. -#}
{% macro route_descriptions() %}
    {{ return(['owner', 'runbook', 'logs_url', 'trace_url', 'request_id', 'process_id', 'trace_id']) }}
{% endmacro %}
