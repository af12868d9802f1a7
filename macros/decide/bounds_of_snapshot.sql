{#- The current snapshot of `deliveries`, as two pieces of SQL: with `as_of` a query reads that snapshot, and with `validated_from` an append is
    refused if another writer has appended since (insert_guarded). Null if the table has no rows yet.

    This query runs first, and the last decided batch is read from that snapshot, so that whatever another decide run commits later is a conflict.
    Else a batch could be decided twice, by rules that have changed in between. -#}
{% macro bounds_of_snapshot() %}
    {%- set query -%}
        select
            concat('version as of ', max(snapshot_id)) as as_of,
            concat(", 'validate-from-snapshot-id' = '", max(snapshot_id), "'") as validated_from
        from {{ wheel_relation() }}.refs
        where name = 'main'
    {%- endset -%}
    {{ return(query) }}
{% endmacro %}
