{#- What keeps a batch from being decided twice, for `append_only`: the rows that nobody else may have written since a snapshot of the wheel. -#}
{% macro decide_guard() %}
    {%- set decide_run = once('decide_run', read_decide_run) -%}
    {{ return({'rows': 'batch > ' ~ decide_run.watermark, 'snapshot': decide_run.snapshot}) }}
{% endmacro %}
