{#- The batches that this fold decides, as literals, so that Iceberg skips all files but theirs. -#}
{% macro in_this_fold(batch) -%}
    {%- set bounds = fold_bounds() -%}
    {{ batch }} > {{ bounds.watermark }} and {{ batch }} <= {{ bounds.upto }}
{%- endmacro %}
