-- publish_results: what became of every send. Written by the loop from what the publisher gives back; declared, and created empty, here.
{{ config(
    appends=false,
    partition_by=['hours(due_at)'],
    tblproperties=ledger_properties(distribution='none', row_group_mb=2),
) }}

{{ typed_empty() }}
