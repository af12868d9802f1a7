{#- Creates a view. With a contract, its columns are those of the model's YAML, in that order, with their descriptions as comments, for `describe`;
    the statement fails if the SQL lacks one. Their types are compared afterwards (require_contract).

    dbt-spark would analyse the SQL three times: for the contract, for the names of the columns, and to create the view. A view over views takes
    seconds each time. -#}
{% macro spark__create_view_as(relation, sql) -%}
    {%- set columns = model.columns.values() | list if config.get('contract').enforced else [] -%}
    create or replace view {{ relation }}
    {%- if columns %} (
        {%- for column in columns %}
        {{ column.name }} comment {{ sql_text(column.description) }}{{ ',' if not loop.last }}
        {%- endfor %}
    )
    {%- endif %}
    comment {{ sql_text(model.description | trim) }}
    as
    {%- if columns %}
    select {{ columns | map(attribute='name') | join(', ') }} from (
        {{ sql }}
    ) as selected
    {%- else %}
    {{ sql }}
    {%- endif %}
{%- endmacro %}


{#- Lists the tables and views of a schema for dbt, as rows of (schema, name, is temporary, information). It replaces the macro of dbt-spark, which
    runs `show table extended`: for an Iceberg catalog that leaves the schema's name empty, so that dbt finds no table and creates each one anew in
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
