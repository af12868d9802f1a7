{#- Runs before a `dbt run`, `test`, `build` or `seed` by hand. Stops it with one message if the rules are not loaded yet; if the tables are still in
    the catalog that an older version used, as dbt would create empty ones beside them; or if the tables have another version. The loop's own runs,
    which pass the var `upto`, skip it. -#}
{% macro require_tables() %}
    {%- if execute and var('upto') is none and flags.WHICH in ('run', 'test', 'build', 'seed') -%}
        {%- if load_relation(wheel_relation()) is not none -%}
            {%- do require_table_version() -%}
        {%- else -%}
            {%- if has_entries_of_before() -%}
                {%- do exceptions.raise_compiler_error(
                    "the tables of this home have the names of version 0.1.0: `redrive run` or `redrive tick` moves them; run one of them first") -%}
            {%- endif -%}
            {%- set rules = api.Relation.create(schema=target.schema, identifier='retry_policies') -%}
            {%- if flags.WHICH in ('run', 'test') and load_relation(rules) is none -%}
                {%- do exceptions.raise_compiler_error(
                    'there are no rules yet: `dbt seed` loads them, and must come first; `dbt build` does both, and tests') -%}
            {%- endif -%}
        {%- endif -%}
    {%- endif -%}
{% endmacro %}
