{#- The earlier rows of the table `deliveries`, for the models that the table is made from, as dbt allows no cycle of refs. Only rows up to the
    watermark: rows that another decide run has just written must not be seen. -#}
{% macro wheel() -%}
    (
        select * from {{ wheel_relation() }}
        where batch <= {{ slot('watermark') }}
    )
{%- endmacro %}
