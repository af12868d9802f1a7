{#- The batches to decide, as (watermark, upto). -#}
{% macro batches_to_decide() %}
    {#- named here, in every model's parsing, so that dbt knows what is read once the decide step runs -#}
    {%- set reads = [ref('events'), ref('publish_results'), ref('ticks'), ref('stg_reports'), ref('stg_failed_sends')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return([0, 0]) }}
    {%- endif -%}
    {%- set decide_run = once('decide_run', read_decide_run) -%}
    {{ return([decide_run.watermark, decide_run.upto]) }}
{% endmacro %}
