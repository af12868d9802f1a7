{#- An insert that is refused, as a whole, when others have written rows of a guard since its snapshot: with serializable isolation Iceberg looks
    for them within the commit, so that of two that run at the same time one is refused. Without a snapshot the table was empty. Spark takes
    the columns of such an insert by their place, not by their name.

    guard: `rows`, a condition, and `snapshot`, or none where the table was empty. sql: rows with columns by name; columns of the table that the
    model doesn't describe are null. -#}
{% macro insert_guarded(relation, sql, guard) -%}
    insert into {{ relation }} with (
        'isolation-level' = 'serializable'{{ ", 'validate-from-snapshot-id' = '" ~ guard.snapshot ~ "'" if guard.snapshot is not none }}
    ) replace where {{ guard.rows }}
    select
        {%- for column in adapter.get_columns_in_relation(relation) %}
        {{ column.name if column.name in model.columns else 'null' }}{{ ',' if not loop.last }}
        {%- endfor %}
    from (
        {{ sql }}
    ) as appended
{%- endmacro %}
