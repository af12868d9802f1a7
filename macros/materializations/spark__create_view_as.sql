{#- A view whose columns carry the comments of the model's description, so that `describe` answers what they mean.

    dbt-spark would analyse the SQL once for the contract and again for the names of its columns. Here it is analysed once: what it says
    of the columns is compared with the contract, and gives the comments their order. -#}
{% macro spark__create_view_as(relation, sql) -%}
    {%- set columns = [] -%}
    {%- if config.get('contract').enforced and execute -%}
        {%- set columns = get_column_schema_from_query(sql, config.get('sql_header', none)) -%}
        {%- set promised = get_column_schema_from_query(get_empty_schema_sql(model.columns)) -%}
        {%- if format_columns(columns) | sort(attribute='name') != format_columns(promised) | sort(attribute='name') -%}
            {#- dbt says what differs -#}
            {%- do get_assert_columns_equivalent(sql) -%}
        {%- endif -%}
    {%- endif -%}
    create or replace view {{ relation }}
    {%- if columns %} (
        {%- for column in columns %}
        {{ column.name }} comment {{ sql_text(model.columns[column.name].description) }}{{ ',' if not loop.last }}
        {%- endfor %}
    )
    {%- endif %}
    comment {{ sql_text(model.description | trim) }}
    as
    {{ sql }}
{%- endmacro %}
