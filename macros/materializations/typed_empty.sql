{#- A query without rows, with every column of the model's YAML in its type. -#}
{% macro typed_empty() -%}
    select
        {%- for column in model.columns.values() %}
        cast(null as {{ column.data_type }}) as {{ column.name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
{%- endmacro %}
