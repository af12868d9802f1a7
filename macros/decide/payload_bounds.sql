{#- When the dead letters were due that keep the payloads of what this run redrives, as (due_from, due_to) in epoch microseconds, or null.
    A redriven dead letter that was sent more than once names the first one, which may be far older. Read once per invocation, and only
    where something is redriven. -#}
{% macro payload_bounds() %}
    {%- set reads = [ref('events')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return({'due_from': none, 'due_to': none}) }}
    {%- endif -%}
    {{ return(once('payload_bounds', read_payload_bounds)) }}
{% endmacro %}
