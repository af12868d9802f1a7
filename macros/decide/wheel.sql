{#- The table `deliveries`, for the models that it is made from: they look at what was decided before, and dbt allows no circle of refs.
    Only rows up to the decide step's watermark: what a decide run beside this one has just written is not there yet. -#}
{% macro wheel() -%}
    (
        select * from {{ wheel_relation() }}
        where batch <= {{ batches_to_decide()[0] }}
    )
{%- endmacro %}
