{#- A condition on a batch: one that this run decides. The bounds are literals, so that Iceberg skips files of other batches. -#}
{% macro in_this_run(batch) -%}
    {%- set watermark, upto = batches_to_decide() -%}
    {{ batch }} > {{ watermark }} and {{ batch }} <= {{ upto }}
{%- endmacro %}
