{#- Loads a seed with its text escaped: dbt-spark's own puts it between quotes as it stands, so that an apostrophe ends it and a
    backslash of a regular expression disappears. -#}
{% macro spark__load_csv_rows(model, agate_table) %}

    {%- set types = model['config'].get('column_types', {}) -%}

    {%- set statement_sql -%}
        insert into {{ this.render() }} values
        {%- for row in agate_table.rows %}
        (
            {%- for column in agate_table.column_names -%}
                {%- set value = row[column] -%}
                {%- set type = types.get(column, adapter.convert_type(agate_table, loop.index0)) -%}
                cast({{ 'null' if value is none else sql_text(value) }} as {{ type }})
                {%- if not loop.last %}, {% endif -%}
            {%- endfor -%}
        )
        {%- if not loop.last %},{% endif -%}
        {%- endfor -%}
    {%- endset -%}

    {%- if agate_table.rows | length > 0 -%}
        {%- do adapter.add_query(statement_sql, abridge_sql_log=True) -%}
    {%- endif -%}

    {{ return(statement_sql) }}

{% endmacro %}
