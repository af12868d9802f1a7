{#- The version of the tables that this project reads and writes: TABLE_VERSION of orchestration/tables/migration.py. Each table has it in its
    property `redrive.version`; tables of version 1 have none. -#}
{% macro table_version() %}
    {{ return(2) }}
{% endmacro %}
