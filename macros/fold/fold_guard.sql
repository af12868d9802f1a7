{#- What keeps a batch from being decided twice, for `append_only`: the rows that nobody else may have written since a snapshot of the wheel. -#}
{% macro fold_guard() %}
    {%- set fold = once('fold', read_fold) -%}
    {{ return({'rows': 'batch > ' ~ fold.watermark, 'snapshot': fold.snapshot}) }}
{% endmacro %}
