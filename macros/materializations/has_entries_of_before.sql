{#- Whether the SQLite file of the catalog has tables under `redrive`, the name of the catalog up to version 0.1.0. False for any other catalog,
    whose tables are moved by hand: docs/tables.md. -#}
{% macro has_entries_of_before() %}
    {%- set catalog = run_query('select current_catalog()').rows[0][0] -%}
    {%- set address = run_query('set spark.sql.catalog.' ~ catalog ~ '.uri').rows[0][1] -%}
    {%- if catalog == 'redrive' or not address.startswith('jdbc:sqlite:') -%}
        {{ return(false) }}
    {%- endif -%}
    {%- do run_query(
        "create or replace temporary view catalog_entries using org.apache.spark.sql.jdbc options (url " ~ sql_text(address)
        ~ ", driver 'org.sqlite.JDBC', dbtable 'iceberg_tables')") -%}
    {%- set found = run_query("select 1 from catalog_entries where catalog_name = 'redrive' limit 1") -%}
    {%- do run_query('drop view if exists catalog_entries') -%}
    {{ return(found | length > 0) }}
{% endmacro %}
