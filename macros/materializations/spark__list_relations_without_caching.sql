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
