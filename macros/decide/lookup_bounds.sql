{#- What this run looks up, as literals, so that Iceberg skips the files of everything else: how much waits makes no difference then.

    Returns a dictionary:
    - due_from, due_to: the dues of all deliveries that the inputs may answer, in microseconds since 1970, or null;
    - redrives: how many of the inputs ask for a redrive;
    - named, origin: where the inputs say they failed, and where their messages came from: spans of offsets, by topic and partition.

    Read once per invocation. Everything in it is a number, or a topic's name that passed kafka_topic. -#}
{% macro lookup_bounds() %}
    {%- set nothing = {'inputs': 0, 'redrives': 0, 'due_from': none, 'due_to': none, 'named': [], 'origin': []} -%}
    {#- named here, in every model's parsing, so that dbt knows what is read once the decide step runs -#}
    {%- set reads = [ref('stg_reports'), ref('stg_failed_sends'), ref('publish_results')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return(nothing) }}
    {%- endif -%}
    {{ return(once('decide_run', read_decide_run).bounds) }}
{% endmacro %}
