{#- The columns of `routes` that inform people, and `purge_after`, by which `redrive dlq triage` purges: none affects decisions. -#}
{% macro route_descriptions() %}
    {{ return(['owner', 'runbook', 'logs_url', 'trace_url', 'request_id', 'process_id', 'trace_id', 'purge_after']) }}
{% endmacro %}
