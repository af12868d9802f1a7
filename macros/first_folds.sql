{#- Which fold's rows count, for each batch, among the deliveries for which a condition holds. A fold that is repeated after a crash, or runs
    beside another, writes the rows of a batch again, the same but for their `fold`: whoever reads `deliveries` joins this on (batch,
    due_hour, fold), and sees each decision once. A fold's rows come with one commit, so that a batch is there as a whole or not at all; and
    as its copies are the same, a condition holds for all of them or none. By hour, so that a reader's bounds reach this, too. -#}
{% macro first_folds(deliveries, condition='true') -%}
    select
        batch,
        due_hour,
        min(fold) as fold
    from {{ deliveries }} as deliveries
    where {{ condition }}
    group by batch, due_hour
{%- endmacro %}
