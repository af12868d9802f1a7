{#- Before a `dbt run`, `test`, `build` or `seed` by hand: stops with a line where every model would fail, or where empty tables would be made
    beside full ones. Costs nothing where `deliveries` is there, and in the loop's own runs, which say what they fold. -#}
{% macro require_tables() %}
    {%- if execute and var('upto') is none and flags.WHICH in ('run', 'test', 'build', 'seed') and load_relation(wheel_relation()) is none -%}
        {%- if has_entries_of_before() -%}
            {%- do exceptions.raise_compiler_error(
                "the tables of this home have the names of version 0.1.0: `redrive run` or `redrive tick` moves them, and must come first") -%}
        {%- endif -%}
        {%- set rules = api.Relation.create(schema=target.schema, identifier='retry_policies') -%}
        {%- if flags.WHICH in ('run', 'test') and load_relation(rules) is none -%}
            {%- do exceptions.raise_compiler_error(
                'there are no rules yet: `dbt seed` loads them, and must come first; `dbt build` does both, and tests') -%}
        {%- endif -%}
    {%- endif -%}
{% endmacro %}
