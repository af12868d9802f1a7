{#- Returns one dictionary for batches_to_decide, lookup_bounds and decide_guard: the batches that this run decides (watermark, upto), the snapshot of
    the wheel, and the bounds of what it looks up. -#}
{% macro read_decide_run() %}

    {%- set decide_run = read_batches_to_decide() -%}
    {%- set bounds = read_lookup_bounds(decide_run.watermark, decide_run.upto) -%}
    {%- if bounds.first_batch != bounds.last_batch -%}
        {%- set end = read_end_of_run(decide_run.watermark, decide_run.upto, bounds.named) -%}
        {%- if end < decide_run.upto -%}
            {%- if var('upto') is none -%}
                {%- do log('batches up to ' ~ end ~ ' are decided; run it again for those up to ' ~ decide_run.upto ~ ', which concern the same messages', info=true) -%}
            {%- endif -%}
            {%- do decide_run.update({'upto': end}) -%}
        {%- endif -%}
    {%- endif -%}
    {%- do decide_run.update({'bounds': bounds}) -%}
    {{ return(decide_run) }}

{% endmacro %}
