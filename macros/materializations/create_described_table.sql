{#- The statement that creates a table from the model's YAML: the names and types of its columns, and the descriptions as comments, for `describe`.
    -#}
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
