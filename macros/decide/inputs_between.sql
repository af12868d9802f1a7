{#- The CTEs `reports` and `failed_sends`: the inputs after one batch up to another, for the queries that a decide run asks before it has bounds. -#}
{% macro inputs_between(watermark, upto) -%}
    reports as (

        select * from {{ ref('stg_reports') }}
        where batch > {{ watermark }} and batch <= {{ upto }}

    ),

    failed_sends as (

        select * from {{ ref('stg_failed_sends') }}
        where batch > {{ watermark }} and batch <= {{ upto }}

    )
{%- endmacro %}
