-- publish_results: the outcome of every send, and every delivery that was held. The loop writes it; dbt creates the empty table.
{{ config(
    appends=false,
    partition_by=['hours(due_at)'],
    tblproperties=ledger_properties(distribution='none', row_group_mb=2),
) }}

{{ typed_empty() }}
