{#- No row, but every column that the model's description lists, with its type: what a table is created from. -#}
{% macro typed_empty() -%}
    select
        {%- for column in model.columns.values() %}
        cast(null as {{ column.data_type }}) as {{ column.name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
{%- endmacro %}
