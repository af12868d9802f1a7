{#- The range of due_at of the dead letters that have the payloads of what this run redrives: a dictionary of due_from and due_to, in microseconds
    since 1970, or none. A dead letter that was written again names the first one, which has the payload and may be far older. Read once per
    invocation, and only if something is redriven. -#}
{% macro payload_bounds() %}
    {%- set reads = [ref('events')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return({'due_from': none, 'due_to': none}) }}
    {%- endif -%}
    {{ return(once('payload_bounds', read_payload_bounds)) }}
{% endmacro %}
