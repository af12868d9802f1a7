{#- Stops a dbt command that a person runs if the tables have another version than this project: dbt would add columns under their new names beside
    those that the loop has to rename. Only a loop migrates tables, when it starts. -#}
{% macro require_table_version() %}
    {%- set found = {'version': 1} -%}
    {%- for row in run_query('show tblproperties ' ~ wheel_relation()) if row[0] == 'redrive.version' -%}
        {%- do found.update({'version': row[1] | int}) -%}
    {%- endfor -%}
    {%- if found.version < table_version() -%}
        {%- do exceptions.raise_compiler_error(
            'the tables of this home have version ' ~ found.version ~ ', this project has version ' ~ table_version()
            ~ ': `redrive run` or `redrive tick` migrates them; run one of them first') -%}
    {%- elif found.version > table_version() -%}
        {%- do exceptions.raise_compiler_error(
            'the tables of this home have version ' ~ found.version ~ ', this project knows versions up to ' ~ table_version()
            ~ ': a newer version of redrive has changed them. Use that one') -%}
    {%- endif -%}
{% endmacro %}
