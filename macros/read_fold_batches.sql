{#- Reads what fold_batches returns: given by the loop, which knows them, or the ends of the tables, which Iceberg answers from metadata.
    Appends are strictly one after another, so everything up to `upto` is complete. As the first thing that a fold asks, it also sees to it
    that what follows is `interpreted`: `deliveries` ends that. -#}
{% macro read_fold_batches() %}

    {%- for setting in interpreted(true) -%}
        {%- do run_query(setting) -%}
    {%- endfor -%}

    {%- if var('watermark') is not none and var('upto') is not none -%}
        {{ return([var('watermark') | int, var('upto') | int]) }}
    {%- endif -%}
    {%- if load_relation(wheel_relation()) is none -%}
        {{ return([0, 0]) }}
    {%- endif -%}

    {%- set ends -%}
        select
            greatest(
                (select coalesce(max(batch), 0) from {{ wheel_relation() }}),
                (select coalesce(max(watermark), 0) from {{ ref('ticks') }})
            ) as watermark,
            greatest(
                (select coalesce(max(batch), 0) from {{ ref('events') }}),
                (select coalesce(max(batch), 0) from {{ ref('publish_results') }}),
                (select coalesce(max(batch), 0) from {{ ref('ticks') }})
            ) as upto
    {%- endset -%}
    {%- set row = run_query(ends)[0] -%}
    {{ return([row['watermark'] | int, [row['upto'] | int, row['watermark'] | int] | max]) }}

{% endmacro %}
