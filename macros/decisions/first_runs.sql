{#- Which decide run's rows count, for each batch, among the deliveries for which a condition holds. No batch is decided twice any more
    (decide_guard). But a decide run of an older version, repeated after a crash or beside another, wrote the rows of a batch again, the same but for
    their `decide_run`: whoever reads `deliveries` joins this on (batch, due_hour, decide_run), and sees each decision once. By hour, so that a reader's
    bounds reach this, too.

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
