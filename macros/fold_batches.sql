{#- The batches to decide, as (watermark, upto). -#}
{% macro fold_batches() %}
    {%- set reads = [ref('events'), ref('publish_results'), ref('ticks')] -%}
    {%- if not execute or flags.WHICH not in ('run', 'build') -%}
        {{ return([0, 0]) }}
    {%- endif -%}
    {{ return(once('fold_batches', read_fold_batches)) }}
{% endmacro %}
