{#- The batches that this run decides, as literals, so that Iceberg skips all files but theirs. -#}
{% macro in_this_run(batch) -%}
    {%- set watermark, upto = batches_to_decide() -%}
    {{ batch }} > {{ watermark }} and {{ batch }} <= {{ upto }}
{%- endmacro %}
