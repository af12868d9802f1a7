{#- Loads a seed in one commit: the table is replaced as a whole, so that no reader sees half of it, and readers of an older snapshot keep that.

    It replaces the materialization of dbt-spark. That one drops, creates and inserts; it doesn't escape text, so that an apostrophe ends it, and a
    backslash in a regular expression is lost; and it writes its SQL to a path made from the seed's: for a seeds directory outside the project
    that is the seed file itself.

    If the file lacks a column, or a cell is empty, the value is that in the seed's meta `defaults`: older files stay valid. Such a column is a
    string. Its type is set here: without a type dbt guesses one, and 007 becomes 7. It is set only if the file has the column, as dbt warns of
    a type for a column that isn't there.

    For one version, a renamed column may have its former name in the file: meta `formerly` maps it to the new one.

    Blanks around a value are removed, and empty lines left out, as in orchestration/rules/seeds.py: the values that Python checks must be those that
    the rules compare. -#}
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
            {#- an empty line, which Python's check skips, is a row without values to dbt -#}
            {%- for row in table.rows if row.values() | reject('none') | list %},
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
