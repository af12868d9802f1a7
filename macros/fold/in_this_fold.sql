{#- The batches that this fold decides, as literals, so that Iceberg skips all files but theirs. -#}
{% macro in_this_fold(batch) -%}
    {%- set watermark, upto = fold_batches() -%}
    {{ batch }} > {{ watermark }} and {{ batch }} <= {{ upto }}
{%- endmacro %}
