{#- Creates a view whose columns have the descriptions of the model's YAML as comments, for `describe`.

    dbt-spark would analyse the SQL twice, for the contract and for the names of the columns. Here it is analysed once: the result is compared with
    the contract, and gives the order of the columns. -#}
{% macro spark__create_view_as(relation, sql) -%}
    {%- set columns = [] -%}
    {%- if config.get('contract').enforced and execute -%}
        {%- set columns = get_column_schema_from_query(sql, config.get('sql_header', none)) -%}
        {%- set promised = get_column_schema_from_query(get_empty_schema_sql(model.columns)) -%}
        {%- if format_columns(columns) | sort(attribute='name') != format_columns(promised) | sort(attribute='name') -%}
            {#- raises dbt's error, which lists the differences -#}
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


{#- Lists the tables and views of a schema for dbt, as rows of (schema, name, is temporary, information). It replaces the macro of dbt-spark, which
    runs `show table extended`: for an Iceberg catalog that leaves the schema's name empty, so that dbt finds no table and creates each one anew on
    every run; it also reads the metadata of every table, and lists no views. -#}
{% macro spark__list_relations_without_caching(relation) %}
    {%- set rows = [] -%}
    {%- set views = [] -%}
    {%- for row in run_query('show views in ' ~ relation.schema) -%}
        {%- do views.append(row[1]) -%}
        {%- do rows.append([relation.schema, row[1], false, 'Type: VIEW']) -%}
    {%- endfor -%}
    {%- for row in run_query('show tables in ' ~ relation.schema) if row[1] not in views -%}
        {%- do rows.append([relation.schema, row[1], false, 'Provider: iceberg']) -%}
    {%- endfor -%}
    {{ return(rows) }}
{% endmacro %}
