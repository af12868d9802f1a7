{#- Lets Spark analyse a long model piece by piece; returns what is left of its SQL. The ephemeral models that its config `stages` names become
    temporary views, under the names that dbt gives them, analysed once where they are made. As one statement Spark goes over the whole of it
    in each of the more than a hundred rounds that resolving such a line of named subqueries takes: a decide run of 20 reports needs 4.3 s so, and
    1.5 s in stages. Everything else is as it was: a view is put in place of its name before anything is optimized or read.
    What makes it so is spark.sql.legacy.storeAnalyzedPlanForView in profiles.yml; without it, a decide run is right, and slow. -#}
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
