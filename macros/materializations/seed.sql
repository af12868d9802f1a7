{#- Loads a seed in one commit: the table is replaced by what the file says, so that nobody sees half of it, and readers of an older
    snapshot keep theirs.

    dbt-spark's own drops, creates and inserts; puts text between quotes as it stands, so that an apostrophe ends it and a backslash of a
    regular expression disappears; and writes its SQL to a path that it makes from the seed's, which for a seeds directory outside the
    project is the seed file itself.

    A column that the file lacks, or an empty cell of it, is what `defaults` (meta) of the seed says: files of before stay valid. Such a
    column is a string; dbt warns of a type for a column that the file lacks, so that the type is set here, where the file has it. Without a
    type dbt guesses one, and 007 becomes 7.

    A column that was renamed may have its former name in the file for one version: `formerly` (meta) says which it is now.

    Blanks around a value are removed, as orchestration/rules/seeds.py does: what it checks must be what the rules compare. -#}
{% materialization seed, adapter='spark' %}

    {%- set types = model['config'].get('column_types', {}) -%}
    {%- set defaults = model['config'].get('meta', {}).get('defaults', {}) -%}
    {%- set formerly = model['config'].get('meta', {}).get('formerly', {}) -%}
    {%- for column in load_agate_table().column_names if formerly.get(column, column) in defaults -%}
        {%- do config.model.config.column_types.update({column: 'string'}) -%}
    {%- endfor -%}
    {%- set table = load_agate_table() -%}
    {%- do store_result('agate_table', response='OK', agate_table=table) -%}
    {%- set names = [] -%}
    {%- for column in table.column_names -%}
        {%- do names.append(formerly.get(column, column)) -%}
    {%- endfor -%}
    {%- set missing = defaults.keys() | reject('in', names) | list -%}

    {{ run_hooks(pre_hooks) }}

    {%- call statement() -%}
        create or replace table {{ this }}
        using iceberg
        as
        select
            {%- for column in names %}
            cast({{ column }} as {{ types.get(column, 'string') }}) as {{ column }}{{ ',' if not loop.last }}
            {%- endfor %}
            {%- for column in missing %},
            cast({{ sql_text(defaults[column]) }} as {{ types.get(column, 'string') }}) as {{ column }}
            {%- endfor %}
        from values
            -- a row of nulls gives an empty file its columns
            ({{ (['null'] * (table.column_names | length)) | join(', ') }}, false)
            {%- for row in table.rows %},
            (
                {%- for column in table.column_names -%}
                {%- set value = defaults.get(formerly.get(column, column)) if row[column] is none else row[column] | trim -%}
                {{ 'null' if value is none else sql_text(value) }},{{ ' ' }}
                {%- endfor -%}
            true)
            {%- endfor %}
            as rows ({{ names | join(', ') }}, is_row)
        where is_row
    {%- endcall -%}

    {{ run_hooks(post_hooks) }}

    {%- do store_raw_result('main', message='INSERT ' ~ (table.rows | length), code='INSERT', rows_affected=table.rows | length) -%}
    {{ return({'relations': [this.incorporate(type='table')]}) }}

{% endmaterialization %}
