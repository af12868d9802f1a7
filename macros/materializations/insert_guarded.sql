{#- An insert that is refused as a whole if another writer has added rows of the guard since its snapshot: with serializable isolation, Iceberg checks
    that within the commit, so that of two inserts at the same time one is refused. All columns are listed in the table's order, as Spark takes
    those of `replace where` by position, not by name.

    guard: `rows`, a condition, and `snapshot`, or none if the table was empty. sql: rows with columns by name; columns of the table that the
    model's YAML doesn't have are null. -#}
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
