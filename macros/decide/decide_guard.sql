{#- The guard of `deliveries`, for `append_only`: if another run has written rows of later batches since this run's snapshot of the table, the append
    is refused. Without it a batch could be decided twice. -#}
{% macro decide_guard() %}
    {%- set decide_run = once('decide_run', read_decide_run) -%}
    {{ return({'rows': 'batch > ' ~ decide_run.watermark, 'snapshot': decide_run.snapshot}) }}
{% endmacro %}
