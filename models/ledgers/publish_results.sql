-- publish_results: the outcome of every send. The loop writes it from what the publisher returns; dbt creates the empty table.
{{ config(
    appends=false,
    partition_by=['hours(due_at)'],
    tblproperties=ledger_properties(distribution='none', row_group_mb=2),
) }}

{{ typed_empty() }}
