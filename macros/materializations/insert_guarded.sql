{#- An insert that is refused as a whole if another writer has added rows for which the guard holds since the snapshot in the slot
    `validated_from` (no snapshot: since the table was empty): with serializable isolation, Iceberg checks that within the commit, so that of two
    inserts at the same time one is refused. No such rows may exist in the snapshot: the append would replace them. All columns are listed in the
    table's order, as Spark takes those of `replace where` by position, not by name.

    columns: those of the model's YAML; other columns of the table are null. sql: rows with these columns by name. guard: a condition on rows. -#}
{% macro insert_guarded(relation, columns, sql, guard) -%}
    insert into {{ relation }} with ('isolation-level' = 'serializable'{{ slot('validated_from', '') }}) replace where {{ guard }}
    select
        {%- for column in adapter.get_columns_in_relation(relation) %}
        {{ column.name if column.name in columns else 'null' }}{{ ',' if not loop.last }}
        {%- endfor %}
    from (
        {{ sql }}
    ) as appended
{%- endmacro %}
