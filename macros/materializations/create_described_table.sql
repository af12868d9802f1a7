{#- Creates a table from what the model's description says of its columns: names, types, and what they mean, for `describe`. -#}
{% macro create_described_table(relation) %}
    create table {{ relation }} (
        {%- for column in model.columns.values() %}
        {{ column.name }} {{ column.data_type }} comment {{ sql_text(column.description) }}{{ ',' if not loop.last }}
        {%- endfor %}
    )
    {{ file_format_clause() }}
    {{ partition_cols(label='partitioned by') }}
    {{ tblproperties_clause() }}
    comment {{ sql_text(model.description | trim) }}
{% endmacro %}
