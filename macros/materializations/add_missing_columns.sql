{#- Adds to a table the columns that the model's YAML lists and the table lacks. They are null in the rows that the table has already. -#}
{% macro add_missing_columns(relation) %}
    {%- set existing = adapter.get_columns_in_relation(relation) | map(attribute='name') | list -%}
    {%- set missing = model.columns.values() | rejectattr('name', 'in', existing) | list -%}
    {%- if missing -%}
        {%- call statement() -%}
            alter table {{ relation }} add columns (
                {%- for column in missing %}
                {{ column.name }} {{ column.data_type }} comment {{ sql_text(column.description) }}{{ ',' if not loop.last }}
                {%- endfor %}
            )
        {%- endcall -%}
    {%- endif -%}
{% endmacro %}
