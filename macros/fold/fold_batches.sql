{#- The batches to decide, as (watermark, upto). -#}
{% macro fold_batches() %}
    {#- named here, in every model's parsing, so that dbt knows what is read once the fold runs -#}
    {%- set reads = [ref('events'), ref('publish_results'), ref('ticks'), ref('stg_reports'), ref('stg_failed_sends')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return([0, 0]) }}
    {%- endif -%}
    {%- set fold = once('fold', read_fold) -%}
    {{ return([fold.watermark, fold.upto]) }}
{% endmacro %}
