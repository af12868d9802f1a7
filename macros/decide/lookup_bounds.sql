{#- The bounds of what this decide run looks up, to be written as literals, so that Iceberg skips all other files: how long a run takes doesn't depend
    on how many deliveries wait.

    Returns a dictionary:
    - inputs: how many inputs there are;
    - due_from, due_to: the range of due_at of all deliveries that the inputs may answer, in microseconds since 1970, or none;
    - redrives: how many of the inputs ask for a redrive;
    - named, origin: spans of offsets by topic and partition, of the records that failed, and of the original records, as the inputs name them.

    Read once per invocation. Its values are numbers, and names of topics that passed kafka_topic: they are safe in a statement. -#}
{% macro lookup_bounds() %}
    {%- set nothing = {'inputs': 0, 'redrives': 0, 'due_from': none, 'due_to': none, 'named': [], 'origin': []} -%}
    {#- dbt finds a model's refs when it parses it, where the rest of this macro doesn't run: they are named here -#}
    {%- set reads = [ref('stg_reports'), ref('stg_failed_sends'), ref('publish_results')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return(nothing) }}
    {%- endif -%}
    {{ return(once('decide_run', read_decide_run).bounds) }}
{% endmacro %}
