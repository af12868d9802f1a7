{#- The CTEs `reports` and `failed_sends`: the inputs after batch `watermark` up to `upto`, for the queries that find a decide run's bounds. -#}
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
