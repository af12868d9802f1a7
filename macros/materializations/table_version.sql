{#- The version of the tables that this project reads and writes; it must equal TABLE_VERSION in orchestration/tables/migration.py. Each table has it
    as its property `redrive.version`; tables of version 1 don't have the property. -#}
{% macro table_version() %}
    {{ return(3) }}
{% endmacro %}
