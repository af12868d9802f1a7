{#- Loads a seed in one commit: the table is replaced by what the file says, so that nobody sees half of it, and readers of an older
    snapshot keep theirs.

    dbt-spark's own drops, creates and inserts; puts text between quotes as it stands, so that an apostrophe ends it and a backslash of a
    regular expression disappears; and writes its SQL to a path that it makes from the seed's, which for a seeds directory outside the
    project is the seed file itself. -#}
{% materialization seed, adapter='spark' %}

    {%- set table = load_agate_table() -%}
    {%- do store_result('agate_table', response='OK', agate_table=table) -%}
    {%- set types = model['config'].get('column_types', {}) -%}

    {{ run_hooks(pre_hooks) }}

    {%- call statement() -%}
        create or replace table {{ this }}
        using iceberg
        as
        select
            {%- for column in table.column_names %}
            cast({{ column }} as {{ types.get(column, 'string') }}) as {{ column }}{{ ',' if not loop.last }}
            {%- endfor %}
        from values
            -- a row of nulls gives an empty file its columns
            ({{ (['null'] * (table.column_names | length)) | join(', ') }}, false)
            {%- for row in table.rows %},
            (
                {%- for column in table.column_names -%}
                {{ 'null' if row[column] is none else sql_text(row[column]) }},{{ ' ' }}
                {%- endfor -%}
            true)
            {%- endfor %}
            as rows ({{ table.column_names | join(', ') }}, is_row)
        where is_row
    {%- endcall -%}

    {{ run_hooks(post_hooks) }}

    {%- do store_raw_result('main', message='INSERT ' ~ (table.rows | length), code='INSERT', rows_affected=table.rows | length) -%}
    {{ return({'relations': [this.incorporate(type='table')]}) }}

{% endmaterialization %}
