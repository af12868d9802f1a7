{#- The current snapshot of `deliveries`, as two pieces of SQL: `as_of` reads the table so, and `validated_from` has an append refused if another
    writer has appended since (insert_guarded). Null if the table has no rows yet.

    It is read first, and the last decided batch from that snapshot: what another decide run commits later is a conflict. No batch may be decided
    twice: the rules may have changed in between, and a message would have two decisions. -#}
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
