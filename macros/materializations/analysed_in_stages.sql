{#- Splits the SQL of a long model, so that Spark analyses it in stages; returns the rest of the SQL. The ephemeral models that the config `stages`
    lists become temporary views, with the names that dbt gives their CTEs. To resolve a long chain of CTEs, Spark needs more than a hundred rounds;
    in one statement, each goes over all of it: a decide run of 20 reports takes 4.3 s so, and 1.5 s in stages. The plan that is executed is the
    same, as Spark replaces views by their plans before it optimizes. Needs spark.sql.legacy.storeAnalyzedPlanForView (profiles.yml): without that
    setting, views are analysed again where they are used, which is slow and not wrong. -#}
{% macro analysed_in_stages(sql) -%}
    {%- set left = [] -%}
    {%- set injected = model.extra_ctes | map(attribute='sql') | join(', ') ~ ', ' -%}
    {%- if not model.extra_ctes or injected not in sql -%}
        {{ return(sql) }}
    {%- endif -%}
    {%- for cte in model.extra_ctes -%}
        {%- set name = cte.sql.split(' as (')[0] | trim -%}
        {%- do left.append(cte.sql) -%}
        {%- if name.removeprefix('__dbt__cte__') in config.require('stages') -%}
            {%- do run_query('create or replace temporary view ' ~ name ~ ' as with ' ~ left | join(', ') ~ ' select * from ' ~ name) -%}
            {%- do left.clear() -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(sql | replace(injected, (left | join(', ') ~ ', ') if left else '')) }}
{%- endmacro %}
