{#- What this fold reads, as literals, so that Iceberg skips the files of everything else: how much waits makes no difference then.

    Returns a dictionary:
    - watermark, upto: the batches to decide are those above the one, up to the other;
    - due_from, due_to: the dues of all deliveries that the inputs may answer, or null;
    - named, origin: where the inputs say they failed, and where their messages came from: least and greatest offset per topic.

    Computed once per invocation and kept in `graph`, which all models of an invocation share: a batch that arrives between two of them
    must not be in one and miss in the other. Everything in it is a number, a time, or a topic's name that passed kafka_topic. -#}
{% macro fold_bounds() %}
    {#- named here, in every model's parsing, so that dbt knows what is read once the fold runs -#}
    {%- set reads = [ref('events'), ref('publish_results'), ref('ticks'), ref('stg_reports'), ref('stg_failed_sends')] -%}
    {%- if not execute or load_relation(wheel_relation()) is none -%}
        {{ return({'watermark': 0, 'upto': 0, 'inputs': 0, 'due_from': none, 'due_to': none, 'named': [], 'origin': []}) }}
    {%- endif -%}
    {%- if 'redrive_fold_bounds' not in graph -%}
        {%- do graph.update({'redrive_fold_bounds': read_fold_bounds()}) -%}
    {%- endif -%}
    {{ return(graph['redrive_fold_bounds']) }}
{% endmacro %}
