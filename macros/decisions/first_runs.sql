{#- A query for the decide run whose rows count, by batch and hour: a reader of `deliveries` joins it on (batch, due_hour, decide_run) to see each
    decision once. Older versions could decide a batch twice, after a crash or in two runs at once, and wrote its rows again, with another
    `decide_run`; the guard of `deliveries` now prevents that. By hour, so that a reader's condition on due_hour restricts this query, too.

    deliveries: a relation or a subquery. condition: of columns of `deliveries`. -#}
{% macro first_runs(deliveries, condition='true') -%}
    select
        batch,
        due_hour,
        min(decide_run) as decide_run
    from {{ deliveries }} as deliveries
    where {{ condition }}
    group by batch, due_hour
{%- endmacro %}
