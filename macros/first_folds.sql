{#- Which fold's rows count, for each batch. A fold that is repeated after a crash, or runs beside another, writes the rows of a batch again,
    the same but for their `fold`: whoever reads `deliveries` joins this on (batch, due_hour, fold), and sees each decision once. A fold's
    rows come with one commit, so that a batch is there as a whole or not at all. By hour, so that a reader's bounds reach this, too. -#}
{% macro first_folds(deliveries) -%}
    select
        batch,
        due_hour,
        min(fold) as fold
    from {{ deliveries }}
    group by batch, due_hour
{%- endmacro %}
