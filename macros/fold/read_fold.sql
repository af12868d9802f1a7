{#- Reads what fold_batches, fold_bounds and fold_guard return: which batches are decided now, from which snapshot of the wheel, and what is
    looked up for them. -#}
{% macro read_fold() %}

    {%- set fold = read_fold_batches() -%}
    {%- set bounds = read_fold_bounds(fold.watermark, fold.upto) -%}
    {%- if bounds.first_batch != bounds.last_batch -%}
        {%- set end = read_fold_end(fold.watermark, fold.upto, bounds.named) -%}
        {%- if end < fold.upto -%}
            {%- if var('upto') is none -%}
                {%- do log('batches up to ' ~ end ~ ' are decided; run it again for those up to ' ~ fold.upto ~ ', which concern the same messages', info=true) -%}
            {%- endif -%}
            {%- do fold.update({'upto': end}) -%}
        {%- endif -%}
    {%- endif -%}
    {%- do fold.update({'bounds': bounds}) -%}
    {{ return(fold) }}

{% endmacro %}
