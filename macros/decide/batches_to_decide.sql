{#- The batches that this run decides, as (watermark, upto): those after the first up to the second. -#}
{% macro batches_to_decide() %}
    {#- dbt finds a model's refs when it parses it, where the rest of this macro doesn't run: they are named here -#}
    {%- set reads = [ref('events'), ref('publish_results'), ref('ticks'), ref('stg_reports'), ref('stg_failed_sends')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return([0, 0]) }}
    {%- endif -%}
    {%- set decide_run = once('decide_run', read_decide_run) -%}
    {{ return([decide_run.watermark, decide_run.upto]) }}
{% endmacro %}
